/* The completion script of bash. It is made of a fixed part, which reads the
 * words before the cursor as options_command.c does, and of what follows from
 * the table: which option takes what. Start at gpt_opt_complete_bash(). */
#include "base/options_internal.h"

#include <string.h>

/* ---- the fixed part ---- */

/* A path that is typed runs no program: what is asked is the program of that
 * name on PATH. Names of options with '_' are offered with '_'. Forms that turn
 * a flag off, and further names of an option, are offered where they are asked
 * for, or stand already: they would double every list. */
static const char offers_script[] =
    "FN_words() {\n"
    "    compopt +o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$*\" -- \"$cur\")\n"
    "}\n"
    "FN_add() {\n"
    "    mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(\"$@\" -- \"$cur\")\n"
    "}\n"
    "FN_names() {\n"
    "    local names=$1 more=$2\n"
    "    if [[ $cur == *_* ]]; then\n"
    "        names=${names//-/_} names=${names//__/--}\n"
    "        more=${more//-/_} more=${more//__/--}\n"
    "    fi\n"
    "    FN_words \"$names\"\n"
    "    if [[ $cur == --n* || \" $more \" == *\" $cur \"* ]] ||\n"
    "            ((${#COMPREPLY[@]} == 0)); then\n"
    "        FN_add compgen -W \"$more\"\n"
    "    fi\n"
    "}\n"
    "FN_offer() { # sets|dirs|files|config|nothing, or: choices WORD...\n"
    "    case $1 in\n"
    "    choices) shift; FN_words \"$@\" ;;\n"
    "    dirs) FN_add compgen -d ;;\n"
    "    files) FN_add compgen -f ;;\n"
    "    config)\n"
    "        FN_add compgen -W \"$(PROG --complete=presets 2>/dev/null)\"\n"
    "        FN_add compgen -f ;;\n"
    "    sets)\n"
    "        FN_add compgen -f -X '!*.idx'\n"
    "        COMPREPLY=(\"${COMPREPLY[@]%.idx}\")\n"
    "        FN_add compgen -d ;;\n"
    "    esac\n"
    "}\n";

/* Only of a program that starts another: the words from that one on are
 * completed as its own. With nothing typed, all commands would be too many. */
static const char program_script[] =
    "FN_program() { # number of the program's word\n"
    "    local name=${COMP_WORDS[$1]##*/} function words\n"
    "    if ((COMP_CWORD == $1)); then\n"
    "        FN_add compgen -c\n"
    "        [[ $cur ]] || COMPREPLY=($(compgen -c gpt-))\n"
    "        return\n"
    "    fi\n"
    "    if [[ $name != gpt-* ]]; then\n"
    "        declare -F _command_offset >/dev/null &&\n"
    "            _command_offset \"$1\" || FN_offer files\n"
    "        return\n"
    "    fi\n"
    "    complete -p \"$name\" &>/dev/null ||\n"
    "        eval \"$(command \"$name\" --complete=bash 2>/dev/null)\"\n"
    "    function=$(complete -p \"$name\" 2>/dev/null)\n"
    "    [[ $function == *' -F '* ]] || return\n"
    "    function=${function##* -F } function=${function%% *}\n"
    "    words=(\"${COMP_WORDS[@]:$1}\")\n"
    "    local COMP_WORDS=(\"${words[@]}\") COMP_CWORD=$((COMP_CWORD - $1))\n"
    "    COMPREPLY=()\n"
    "    \"$function\"\n"
    "}\n";

/* bash makes words of "--name=value": the name, "=" and the value, unless the
 * user took '=' out of COMP_WORDBREAKS. An option that awaits a value is
 * `open`: for "value" one word, for "list" all up to the next option. */
static const char walk_script[] =
    "FN() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} open= kind= offer= equals=\n"
    "    local i word count=0 only_words= head= IFS=$' \\t\\n'\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $open && $word == = && ! $equals ]]; then\n"
    "            equals=1\n"
    "        elif [[ $open && ($open == value || $equals) ]]; then\n"
    "            open= equals=\n"
    "        elif [[ $only_words || $word != -?* ]]; then\n"
    "            [[ $open ]] && continue\n";
static const char cursor_script[] =
    "        elif [[ $word == -- ]]; then\n"
    "            only_words=1 open=\n"
    "        else\n"
    "            FN_row \"$word\"\n"
    "            open=$kind equals=\n"
    "        fi\n"
    "    done\n"
    "    if [[ $open && $cur == = && ! $equals ]]; then\n"
    "        cur= equals=1\n"
    "    elif [[ ! $only_words && $cur == --*=* && $open != value ]]; then\n"
    "        head=${cur%%=*} cur=${cur#*=}\n"
    "        FN_row \"$head\"\n"
    "        open=$kind equals=1 head=$head=\n"
    "    fi\n"
    "    if [[ $open == value || $equals || ($open && $cur != -*) ]]; then\n"
    "        [[ $open ]] && FN_offer $offer\n"
    "        COMPREPLY=(\"${COMPREPLY[@]/#/$head}\")\n"
    "    elif [[ $cur == -* && ! $only_words ]]; then\n";

/* ---- what follows from the table ---- */

/* All spellings of an option are one pattern of a case. */
static int add_pattern(struct gpt_buf *b, const struct gpt_opt *o)
{
    GPT_TRY(gpt_buf_printf(b, "    --%s", o->name));
    for (const char *alias = o->alias; alias && *alias;) {
        size_t len = strcspn(alias, " ");

        GPT_TRY(gpt_buf_printf(b, "|--%.*s", (int)len, alias));
        alias += len;
        alias += strspn(alias, " ");
    }
    return o->letter ? gpt_buf_printf(b, "|-%c", o->letter) : GPT_OK;
}

static int add_offer(struct gpt_buf *b, enum gpt_offer offer,
                     const char *const *choices)
{
    static const char *const names[] = {
        [GPT_OFFER_NOTHING] = "nothing", [GPT_OFFER_CHOICES] = "choices ",
        [GPT_OFFER_CONFIG] = "config",   [GPT_OFFER_SETS] = "sets",
        [GPT_OFFER_DIRS] = "dirs",       [GPT_OFFER_FILES] = "files",
    };

    GPT_TRY(gpt_buf_printf(b, "%s", names[offer]));
    return offer == GPT_OFFER_CHOICES ? gpt_opt_add_words(b, choices) : GPT_OK;
}

/* Flags have no case: for them, and for names that are not known, nothing is
 * open. */
static int add_case(struct gpt_buf *b, const struct gpt_program *program,
                    const struct gpt_opt *o)
{
    (void)program;
    if (!gpt_opt_takes_value(o))
        return GPT_OK;
    GPT_TRY(add_pattern(b, o));
    GPT_TRY(gpt_buf_printf(b, ") kind=%s offer='",
                           o->kind == GPT_OPT_LIST ? "list" : "value"));
    GPT_TRY(add_offer(b, gpt_opt_offer(o), o->choices));
    return gpt_buf_printf(b, "' ;;\n");
}

static int add_name(struct gpt_buf *b, const struct gpt_program *program,
                    const struct gpt_opt *o)
{
    (void)program;
    return gpt_buf_printf(b, " --%s", o->name);
}

/* The second rank of names: negations, and aliases, which are for habits from
 * other programs. */
static int add_more_names(struct gpt_buf *b, const struct gpt_program *program,
                          const struct gpt_opt *o)
{
    char negation[100];

    (void)program;
    if (*gpt_opt_negation(o, negation, sizeof(negation)))
        GPT_TRY(gpt_buf_printf(b, " --%s", negation));
    for (const char *alias = o->alias; alias && *alias;) {
        size_t len = strcspn(alias, " ");

        GPT_TRY(gpt_buf_printf(b, " --%.*s", (int)len, alias));
        alias += len;
        alias += strspn(alias, " ");
    }
    return GPT_OK;
}

static int add_rows(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(gpt_opt_add_script(b, program,
                               "FN_row() { # what the table says of an option\n"
                               "    local name=${1//_/-}\n"
                               "    kind= offer=\n"
                               "    case $name in\n"));
    GPT_TRY(gpt_opt_each_row(program, b, add_case));
    return gpt_buf_printf(b, "    esac\n}\n");
}

static int add_names(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(gpt_opt_add_script(b, program, "        FN_names '"));
    GPT_TRY(gpt_opt_each_row(program, b, add_name));
    GPT_TRY(gpt_buf_printf(b, "' '"));
    GPT_TRY(gpt_opt_each_row(program, b, add_more_names));
    return gpt_buf_printf(b, "'\n");
}

/* What is offered where no option is meant. Only the first of these words can
 * be a command; `count` of the walk has the words that were passed. */
static int add_words(const struct gpt_program *program, struct gpt_buf *b)
{
    if (program->stop_at_positional)
        return gpt_opt_add_script(b, program,
                                  "    else\n        FN_program \"$i\"\n");
    if (program->commands) {
        GPT_TRY(gpt_opt_add_script(b, program, "    elif ((count == 0)); then\n"
                                               "        FN_words "));
        GPT_TRY(gpt_opt_add_words(b, program->commands));
        GPT_TRY(gpt_buf_printf(b, "\n"));
    }
    GPT_TRY(gpt_opt_add_script(b, program, "    else\n        FN_offer "));
    GPT_TRY(add_offer(b, gpt_opt_offer_words(program), NULL));
    return gpt_buf_printf(b, "\n");
}

/* The order of the parts is that of their use: a function of bash is looked for
 * when it is called, but a reader looks for it above. */
int gpt_opt_complete_bash(const struct gpt_program *program, struct gpt_buf *b)
{
    bool starts = program->stop_at_positional;

    GPT_TRY(gpt_opt_add_script(b, program, "# bash completion for PROG\n"));
    GPT_TRY(gpt_opt_add_script(b, program, offers_script));
    GPT_TRY(gpt_opt_add_script(b, program, starts ? program_script : ""));
    GPT_TRY(add_rows(program, b));
    GPT_TRY(gpt_opt_add_script(b, program, walk_script));
    GPT_TRY(gpt_opt_add_script(b, program,
                               starts ? "            FN_program \"$i\"\n"
                                        "            return\n"
                                      : "            count=$((count + 1))\n"));
    GPT_TRY(gpt_opt_add_script(b, program, cursor_script));
    GPT_TRY(add_names(program, b));
    GPT_TRY(add_words(program, b));
    return gpt_opt_add_script(b, program, "    fi\n"
                                          "}\n"
                                          "complete -o filenames -F FN PROG\n");
}
