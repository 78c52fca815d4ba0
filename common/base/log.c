/* Messages. Everything goes through emit(), which escapes what could move a
 * terminal's cursor and writes the message at once. */
#include "base/log.h"

#include "base/hash.h"
#include "base/json_string.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct gpt_log_options setup = {.program = "gpt", .level = GPT_LOG_INFO};

static bool lines_to_stdout;

/* The messages of gpt_log_once(), by their hashes. */
static _Thread_local struct {
    bool on;
    int n;
    uint64_t hash[64];
} said;

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const char *const level_colors[] = {"\033[1;31m", "\033[1;35m", "", ""};

void gpt_log_setup(const struct gpt_log_options *options)
{
    setup = *options;
}

void gpt_log_as_json(bool json)
{
    setup.json = json;
}

/* Only downwards: --quiet stays in force. */
void gpt_log_limit(enum gpt_log_level level)
{
    if (setup.level > level)
        setup.level = level;
}

bool gpt_log_wants(enum gpt_log_level level)
{
    return level <= setup.level;
}

bool gpt_log_is_json(void)
{
    return setup.json;
}

/* At most to the NUL: a cut sequence at the end of the text must not be read
 * past it. */
static size_t sequence_length(const unsigned char *s)
{
    return gpt_utf8_length(s, strnlen((const char *)s, 4));
}

/* Bytes that JSON cannot hold become U+FFFD: a reader of the log must never
 * meet a line that it cannot parse. */
static int add_json_string(struct gpt_buf *b, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    char escape[GPT_JSON_ESCAPE];

    GPT_TRY(gpt_buf_add(b, "\"", 1));
    while (*s) {
        size_t n = sequence_length(s);

        if (n == 0) {
            GPT_TRY(gpt_buf_printf(b, "\\ufffd"));
            n = 1;
        } else if (gpt_json_escape(s, n, escape) > 0) {
            GPT_TRY(gpt_buf_printf(b, "%s", escape));
        } else {
            GPT_TRY(gpt_buf_add(b, s, n));
        }
        s += n;
    }
    return gpt_buf_add(b, "\"", 1);
}

static const char time_key[] = "{\"t\":";

/* Milliseconds: what is compared are lines of several ranks, not
 * instructions. */
static int add_json(struct gpt_buf *b, enum gpt_log_level level,
                    const char *text)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    GPT_TRY(gpt_buf_printf(b, "%s%lld.%03ld,\"level\":\"%s\",\"program\":",
                           time_key, (long long)now.tv_sec,
                           now.tv_nsec / 1000000, level_names[level]));
    GPT_TRY(add_json_string(b, setup.program));
    GPT_TRY(gpt_buf_printf(b, ",\"msg\":"));
    GPT_TRY(add_json_string(b, text));
    return gpt_buf_add(b, "}\n", 2);
}

/* A bare message has no "program: level: " before it. */
static int add_message(struct gpt_buf *b, enum gpt_log_level level, bool bare,
                       const char *text)
{
    if (setup.json)
        return add_json(b, level, text);
    const char *color = setup.color ? level_colors[level] : "";
    if (!bare)
        GPT_TRY(gpt_buf_printf(b, "%s: %s%s:%s ", setup.program, color,
                               level_names[level], *color ? "\033[0m" : ""));
    GPT_TRY(gpt_buf_add_shown(b, text, "\t"));
    return gpt_buf_add(b, "\n", 1);
}

void gpt_log_lines_to_stdout(void)
{
    lines_to_stdout = true;
}

/* One write(2) a message keeps messages of several processes on one terminal
 * apart. */
static void emit(enum gpt_log_level level, bool bare, const char *text)
{
    static const char lost[] = "gpt: out of memory for a message\n";
    struct gpt_buf b = {0};

    if (add_message(&b, level, bare, text) != GPT_OK)
        gpt_terminal_message(lost, sizeof(lost) - 1);
    else if (bare && level == GPT_LOG_INFO && lines_to_stdout)
        fwrite(b.data, 1, b.len, stdout); /* gpt_main() sees to errors */
    else
        gpt_terminal_message(b.data, b.len);
    gpt_buf_free(&b);
}

bool gpt_log_once(bool on)
{
    const bool was = said.on;

    said.on = on;
    return was;
}

static bool said_before(const char *text)
{
    const int room = (int)(sizeof(said.hash) / sizeof(said.hash[0]));
    const uint64_t hash = gpt_fnv1a(text);

    for (int i = 0; i < said.n; i++)
        if (said.hash[i] == hash)
            return true;
    if (said.n < room)
        said.hash[said.n++] = hash;
    return false;
}

/* Formats to the stack, or to the heap when that is too small; cut short when
 * memory is out. */
GPT_PRINTF(3, 0)
static void emit_formatted(enum gpt_log_level level, bool bare, const char *fmt,
                           va_list args)
{
    char small[1024];
    char *large = NULL;
    va_list again;

    /* vsnprintf() uses up its arguments, and the length is known only after the
     * first time. */
    va_copy(again, args);
    int n = vsnprintf(small, sizeof(small), fmt, args);
    if (n >= (int)sizeof(small))
        large = gpt_alloc((size_t)n + 1, 1);
    if (large)
        vsnprintf(large, (size_t)n + 1, fmt, again);
    va_end(again);
    if (bare || !said.on || !said_before(large ? large : small))
        emit(level, bare, large ? large : small);
    gpt_free(large);
}

void gpt_log(enum gpt_log_level level, const char *fmt, ...)
{
    va_list args;

    if (!gpt_log_wants(level))
        return;
    va_start(args, fmt);
    emit_formatted(level, false, fmt, args);
    va_end(args);
}

void gpt_log_line(const char *fmt, ...)
{
    va_list args;

    if (!lines_to_stdout && !gpt_log_wants(GPT_LOG_INFO))
        return;
    va_start(args, fmt);
    emit_formatted(GPT_LOG_INFO, true, fmt, args);
    va_end(args);
}

static const char *error_text(const struct gpt_err *err)
{
    return err->text[0] ? err->text : gpt_status_word(err->status);
}

struct hint {
    char text[sizeof(((struct gpt_err *)0)->hint) + sizeof("hint: ")];
};

static struct hint hint_of(const struct gpt_err *err)
{
    struct hint h;

    snprintf(h.text, sizeof(h.text), "hint: %s", err->hint);
    return h;
}

void gpt_log_error(const struct gpt_err *err)
{
    emit(GPT_LOG_ERROR, false, error_text(err));
    if (err->hint[0])
        emit(GPT_LOG_ERROR, true, hint_of(err).text);
}

int gpt_log_prepare_error(struct gpt_buf *b, const struct gpt_err *err)
{
    GPT_TRY(add_message(b, GPT_LOG_ERROR, false, error_text(err)));
    return err->hint[0]
               ? add_message(b, GPT_LOG_ERROR, true, hint_of(err).text)
               : GPT_OK;
}

static void put_digits(char *p, size_t n, long long v)
{
    for (; n > 0; v /= 10)
        p[--n] = (char)('0' + v % 10);
}

/* Safe in a handler. Lines that do not begin as those of add_json() do are
 * text, and have no time. */
void gpt_log_stamp(char *lines)
{
    const size_t key = sizeof(time_key) - 1;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    for (char *at = lines;
         strncmp(at, time_key, key) == 0 && (at = strchr(at, '.'));
         at = strchr(at, '\n') + 1) {
        char *seconds = at;

        while (seconds[-1] != ':')
            seconds--;
        put_digits(seconds, (size_t)(at - seconds), now.tv_sec);
        put_digits(at + 1, 3, now.tv_nsec / 1000000);
    }
}
