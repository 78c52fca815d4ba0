/* The life of a program, from argv to exit status. Start at gpt_main(); how an
 * option is read is in options_sources.c. */
#include "base/options.h"

#include "base/cpu.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/options_internal.h"
#include "base/signals.h"
#include "base/thread.h"
#include "base/variables.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *const gpt_when_choices[] = {"auto", "always", "never", NULL};
const char *const gpt_log_format_choices[] = {"text", "json", NULL};

/* ---- parsing ---- */

/* Arrays of the parser live in the arena, as strings and lists do: they all are
 * needed until the program ends. */
static int parse_all(struct gpt_parse *p, int argc, char *const *argv,
                     struct gpt_args *args)
{
    /* One row more than there are, so that an empty table needs no special
     * case. */
    size_t rows = p->program->n_options + 1;

    p->origin = gpt_arena_alloc(p->arena, rows, sizeof(*p->origin));
    p->source = gpt_arena_alloc(p->arena, rows, sizeof(*p->source));
    p->positional = gpt_arena_alloc(p->arena, (size_t)argc + 1,
                                    sizeof(*p->positional));
    if (!p->origin || !p->source || !p->positional)
        return gpt_no_memory(p->err, "options");
    int status = gpt_opt_read_all(p, argc, argv);
    gpt_free(p->configs);
    gpt_free(p->kept);
    /* The names live in argv; only the array of them was ours. */
    p->configs = NULL;
    p->kept = NULL;
    *args = (struct gpt_args){.positional = p->positional,
                              .n_positional = p->n_positional,
                              .program = p->program,
                              .origin = p->origin,
                              .source = p->source};
    return status;
}

int gpt_options_parse(const struct gpt_program *program, int argc,
                      char *const *argv, void *options, struct gpt_args *args,
                      struct gpt_arena *arena, struct gpt_err *err)
{
    struct gpt_parse p = {.program = program, .options = options,
                          .arena = arena, .err = err};

    return parse_all(&p, argc, argv, args);
}

/* A default, or GPT_THREADS, is not "given": it was not written for this
 * run. */
bool gpt_opt_is_given(const struct gpt_args *args, size_t row)
{
    assert(row < args->program->n_options);
    return args->origin[row] == GPT_FROM_COMMAND ||
           args->origin[row] == GPT_FROM_CONFIG;
}

bool gpt_option_given(const struct gpt_args *args, const char *name)
{
    const struct gpt_opt *o = gpt_opt_find(args->program, name, strlen(name),
                                           NULL);

    return o && gpt_opt_is_given(args, (size_t)(o - args->program->options));
}

/* ---- start ---- */

/* A file opened while 0, 1 or 2 is closed would get that number, and messages
 * would go into it. */
static void occupy_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* "always" is an answer to NO_COLOR, too: what is said for this run wins over
 * the environment. */
bool gpt_wants_color(const char *when, int fd)
{
    const char *no_color = getenv("NO_COLOR");

    if (strcmp(when, "auto") != 0)
        return strcmp(when, "always") == 0;
    return gpt_terminal_obeys(fd) && !(no_color && *no_color);
}

/* --quiet and --verbose win over GPT_LOG: the variable is for a whole session,
 * an option for one run. */
static int choose_level(const struct gpt_common_options *common,
                        enum gpt_log_level *level, struct gpt_err *err)
{
    GPT_TRY(gpt_variables_check(err));
    const int word = gpt_variable_word("GPT_LOG");
    *level = word < 0 ? GPT_LOG_INFO : (enum gpt_log_level)word;
    if (common->quiet && common->verbose) {
        gpt_fail(err, GPT_EUSAGE, "--quiet excludes --verbose");
        return gpt_hint(err, "leave one of them out");
    }
    if (common->quiet)
        *level = GPT_LOG_WARNING;
    if (common->verbose)
        *level = GPT_LOG_DEBUG;
    return GPT_OK;
}

/* Threads take turns on a core, and wait for each other after every operation.
 * A few a core may be meant; many come from another machine's script. A program
 * that starts others computes nothing itself. */
static void warn_of_threads(const struct gpt_program *program)
{
    enum { A_CORE = 8 };
    const int threads = omp_get_max_threads(), cores = omp_get_num_procs();

    if (threads > A_CORE * cores && !program->stop_at_positional)
        gpt_warn("OMP_NUM_THREADS: %d threads on %d core%s, many times slower "
                 "than one a core", threads, cores, gpt_plural(cores));
}

/* From here on messages look as the options want them, and signals are
 * flags. */
static int start(const struct gpt_program *program,
                 const struct gpt_common_options *common, struct gpt_err *err)
{
    struct gpt_log_options log = {.program = program->name};

    GPT_TRY(choose_level(common, &log.level, err));
    log.json = strcmp(common->log_format, "json") == 0;
    log.color = gpt_wants_color(common->color, STDERR_FILENO);
    gpt_log_setup(&log);
    if (program->quiet)
        gpt_log_limit(GPT_LOG_ERROR);
    if (common->threads > 0)
        omp_set_num_threads((int)common->threads);
    if (omp_get_max_threads() > GPT_MOST_THREADS)
        return gpt_fail(err, GPT_EUSAGE,
                        "OMP_NUM_THREADS: %d threads, at most %d",
                        omp_get_max_threads(), (int)GPT_MOST_THREADS);
    GPT_TRY(gpt_cpu_check(gpt_cpu_named(), err));
    if (common->threads == 0)
        warn_of_threads(program);
    if (program->computes)
        gpt_thread_fit();
    gpt_signals_setup();
    return GPT_OK;
}

/* How long threads spin before they sleep while they wait for each other.
 * libgomp's own choice, some milliseconds, loses whole time slices as soon as
 * anything else wants the processor; sleeping at once costs a wake-up for every
 * operation. Text from GPT-2 124M, two cores, share of memory bandwidth: spins
 * 0, 1000, 300000 (libgomp's) gave 0.70, 0.81, 0.83 alone, and 1.24, 0.76,
 * 0.43 beside one busy process (whose share the floor loses too). libgomp reads
 * its environment when it is loaded, before any code of ours, so that setting
 * it takes a second start. A variable that is set already is respected; a
 * program that starts others leaves theirs alone. */
static void choose_spinning(const struct gpt_program *program, char **argv)
{
    if (program->stop_at_positional || getenv("OMP_WAIT_POLICY") ||
        getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv);
}

/* ---- answers that are no run ---- */

/* The product of --help and the like is text on stdout, which check_stdout()
 * makes sure of. */
static int print_text(struct gpt_buf *b, int status, struct gpt_err *err)
{
    if (b->len > 0 && status == GPT_OK)
        fwrite(b->data, 1, b->len, stdout);
    else if (status != GPT_OK && !err->status)
        gpt_no_memory(err, "a text");
    gpt_buf_free(b);
    return status;
}

static int answer(const struct gpt_parse *p)
{
    struct gpt_buf b = {0};
    int status = GPT_EFAIL;

    switch (p->answer) {
    case GPT_ANSWER_NONE:
        break;
    case GPT_ANSWER_HELP:
        status = gpt_opt_help(p->program, &b);
        break;
    case GPT_ANSWER_VERSION:
        status = gpt_opt_version(p->program, &b);
        break;
    case GPT_ANSWER_COMPLETE:
        status = gpt_opt_complete(p->program, p->shell, &b, p->err);
        break;
    }
    return print_text(&b, status, p->err);
}

/* What gives way is shown in a comment above the values that are left. */
static int settle(const struct gpt_parse *p, struct gpt_args *args,
                  struct gpt_buf *b)
{
    struct gpt_buf changes = {0};
    int status = GPT_OK;

    if (p->program->settle)
        status = p->program->settle(p->options, args, p->arena, &changes,
                                    p->err);
    if (status == GPT_OK && changes.len > 0)
        status = gpt_buf_printf(b, "# of configuration files: %s\n",
                                changes.data);
    gpt_buf_free(&changes);
    return status;
}

/* Runs after start(), so that its errors have the form that the log options ask
 * for. */
static int print_config(const struct gpt_parse *p, struct gpt_args *args)
{
    struct gpt_buf b = {0};
    int status = settle(p, args, &b);

    if (status == GPT_OK)
        status = gpt_options_print(p->program, p->options, args, &b);
    return print_text(&b, status, p->err);
}

/* ---- inputs ---- */

/* The name of configuration files is taken when they are read. */
static int protect_input(const struct gpt_parse *p, const struct gpt_opt *o,
                         const char *path)
{
    char name[64];

    if (!gpt_in_is_stdin(path))
        return gpt_in_protect(path, p->err);
    snprintf(name, sizeof(name), "--%s", o->name);
    return strcmp(o->name, "config") == 0 ? GPT_OK
                                          : gpt_claim_stdin(name, p->err);
}

/* Before the program opens an output: which files it reads is known from the
 * table. */
static int protect_inputs(const struct gpt_parse *p)
{
    for (size_t i = 0; i < p->program->n_options; i++) {
        const struct gpt_opt *o = &p->program->options[i];
        const char *at = (const char *)p->options + o->offset;
        struct gpt_list list = {0};

        if (!(o->flags & GPT_OPT_INPUT))
            continue;
        if (o->kind == GPT_OPT_LIST)
            memcpy(&list, at, sizeof(list));
        else
            list = (struct gpt_list){(const char **)(uintptr_t)at, 1};
        for (int64_t k = 0; k < list.n; k++)
            if (list.items[k])
                GPT_TRY(protect_input(p, o, list.items[k]));
    }
    return GPT_OK;
}

/* ---- the whole ---- */

static int run_program(struct gpt_parse *p, int argc, char **argv)
{
    struct gpt_args args;
    /* The common options are the first member of every program's struct. */
    const struct gpt_common_options *common = p->options;

    GPT_TRY(parse_all(p, argc, argv, &args));
    /* Before start(): --help must work whatever else is wrong with the
     * options. */
    if (p->answer != GPT_ANSWER_NONE)
        return answer(p);
    GPT_TRY(start(p->program, common, p->err));
    if (common->print_config)
        return print_config(p, &args);
    GPT_TRY(protect_inputs(p));
    return p->program->run(p->options, &args, p->err);
}

/* A full disk may show only when the last bytes are written. */
static int check_stdout(struct gpt_err *err)
{
    bool bad = ferror(stdout) != 0;

    bad |= fflush(stdout) != 0;
    bad |= close(STDOUT_FILENO) != 0 && errno != EBADF;
    return bad ? gpt_fail_errno(err, GPT_EIO, "cannot write standard output")
               : GPT_OK;
}

int gpt_main(const struct gpt_program *program, int argc, char **argv)
{
    struct gpt_err err = {0};
    struct gpt_arena arena = {0};
    struct gpt_log_options log = {.program = program->name,
                                  .level = GPT_LOG_INFO,
                                  .color = gpt_wants_color("auto",
                                                           STDERR_FILENO)};

    choose_spinning(program, argv);
    /* After the second start the kernel calls the process "exe". */
    prctl(PR_SET_NAME, program->name);
    occupy_standard_files();
    gpt_log_setup(&log);
    if (program->quiet)
        gpt_log_limit(GPT_LOG_ERROR);
    struct gpt_parse p = {.program = program, .arena = &arena, .err = &err};
    p.options = gpt_arena_alloc(&arena, 1, program->options_bytes);
    int status = p.options ? run_program(&p, argc, argv)
                           : gpt_no_memory(&err, "the options");
    /* The first error is the one to report; a stdout that cannot be written
     * after it is a consequence. */
    int flushed = check_stdout(status == GPT_OK ? &err : NULL);
    if (status == GPT_OK)
        status = flushed;
    if (status != GPT_OK) {
        err.status = status;
        gpt_log_error(&err);
    }
    /* What a failed run left open would stay as temporary files. */
    gpt_out_cleanup();
    gpt_arena_free(&arena);
    /* Last, when everything is said and removed: the shell learns from the
     * signal, not from a status, that the run was interrupted, and stops a loop
     * around it. */
    if (gpt_signals_stop())
        gpt_signals_reraise(gpt_signals_stop());
    return status;
}
