/* Templates of chats: those of tests/golden/chat against transformers' texts,
 * what is refused and how, and limits. */
#include "base/io.h"
#include "base/json.h"
#include "text/jinja.h"
#include "tests/lib/tap.h"

static cJSON *parse(const char *text)
{
    cJSON *root = NULL;

    if (gpt_json_parse(&root, text, strlen(text), "test", NULL) != GPT_OK)
        exit(1);
    gpt_json_keep_numbers(root, text);
    return root;
}

/* The text of a template; after a failure its message. */
static int render(const char *source, const cJSON *input, const cJSON *special,
                  time_t now, struct gpt_buf *text, struct gpt_err *err)
{
    const struct gpt_jinja_input in = {input, special, now};
    struct gpt_jinja *t;

    *err = (struct gpt_err){0};
    text->len = 0;
    int status = gpt_jinja_compile(&t, source, strlen(source), err);
    if (status == GPT_OK) {
        status = gpt_jinja_render(t, &in, text, err);
        gpt_jinja_free(t);
    }
    return status;
}

/* ---- goldens ---- */

static void check_line(const cJSON *line, int number)
{
    const char *name = cJSON_GetObjectItem(line, "template")->valuestring;
    const cJSON *want = cJSON_GetObjectItem(line, "text");
    struct gpt_buf text = {0};
    struct gpt_err err;
    char path[256], *source;
    size_t len;

    snprintf(path, sizeof(path), "tests/golden/chat/%s", name);
    if (gpt_read_file(path, 1 << 20, &source, &len, &err) != GPT_OK)
        exit(1);
    const int status =
        render(source, cJSON_GetObjectItem(line, "input"),
               cJSON_GetObjectItem(line, "special"),
               (time_t)cJSON_GetObjectItem(line, "now")->valuedouble, &text,
               &err);
    const bool same =
        cJSON_IsNull(want)
            ? status == GPT_EDATA && strncmp(err.text, "line ", 5) == 0
            : status == GPT_OK && text.len == strlen(want->valuestring) &&
                  memcmp(text.data, want->valuestring, text.len) == 0;
    if (!ok(same, "%s, conversation %d", name, number))
        printf("# %s\n# %s\n", err.text, text.data ? text.data : "");
    gpt_buf_free(&text);
    gpt_free(source);
}

static void test_goldens(void)
{
    FILE *f = fopen("tests/golden/chat/conversations.jsonl", "r");
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    if (!f)
        exit(1);
    setenv("TZ", "UTC", 1);
    while (getline(&line, &cap, f) > 0) {
        cJSON *root = parse(line);

        check_line(root, ++n);
        cJSON_Delete(root);
    }
    free(line);
    fclose(f);
    ok(n > 60, "%d conversations", n);
}

/* ---- what is refused ---- */

static const char input_text[] =
    "{\"s\": \"word\", \"e\": \"\\u00e9\", \"n\": 5, \"none\": null,"
    " \"list\": [1, 2, 3], \"d\": {\"k\": 1}}";

/* The template ends with an error that says so. */
static void refuses(const char *source, const char *message)
{
    cJSON *input = parse(input_text);
    struct gpt_buf text = {0};
    struct gpt_err err;
    const int status = render(source, input, NULL, 1, &text, &err);

    if (!ok(status == GPT_EDATA && strstr(err.text, message), "%s", message))
        printf("# status %d: %s\n", status, err.text);
    gpt_buf_free(&text);
    cJSON_Delete(input);
}

/* The template makes that text. */
static void writes(const char *source, const char *want)
{
    cJSON *input = parse(input_text);
    struct gpt_buf text = {0};
    struct gpt_err err;
    const int status = render(source, input, NULL, 1, &text, &err);

    if (!ok(status == GPT_OK && strcmp(text.data, want) == 0, "%s", source))
        printf("# status %d: %s %s\n", status, err.text,
               text.data ? text.data : "");
    gpt_buf_free(&text);
    cJSON_Delete(input);
}

/* A text of a megabyte, and an expression very often. */
#define LONG_TEXT                                                 \
    "{% set ns = namespace(t='x') %}{% for i in range(20) %}"     \
    "{% set ns.t = ns.t ~ ns.t %}{% endfor %}"
#define MANY_TIMES(expression) \
    "{% for i in range(2000) %}{% set y = " expression " %}{% endfor %}"

static void test_refusals(void)
{
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"a\nb {% include 'x' %}", "line 2: the tag 'include' is not supp"},
        {"{{ s|shuffle }}", "line 1: the filter 'shuffle' is not supported"},
        {"{{ s is green }}", "the test 'green' is not supported"},
        {"\n\n{{ s.center(9) }}", "line 3: the method 'center' of str is not"},
        {"{{ list.append(4) }}", "the method 'append' of list is not"},
        {"{{ joiner(',') }}", "the function 'joiner' is not supported"},
        {"{{ s.split(sep=',', nope=1) }}", "'split' has an argument"},
        {"{% for x in list recursive %}{% endfor %}", "'recursive'"},
        {"{{ s % 1 }}", "'%' of a string is not supported"},
        {"{{ '{'.format(1) }}", "'format' of a '{' without its '}'"},
        {"{{ '}}}'.format(1) }}", "'format' of a '}' without its '{'"},
        {"{{ '{}{}'.format(1) }}", "no argument for '{}'"},
        {"{{ '{0}{}'.format(1, 2) }}", "fields with numbers beside some"},
        {"{{ '{}{0}'.format(1, 2) }}", "fields with numbers beside some"},
        {"{{ '{18446744073709551616}'.format(1) }}", "no argument for '{184"},
        {"{{ '{x}'.format(1) }}", "no argument for '{x}'"},
        {"{{ '{:>4}'.format(1) }}", "'format' with ':' in a field"},
        {"{{ ('{}'|safe).format(1) }}", "'format' of a safe text"},
        {"{{ e|upper }}", "case of U+00E9 is not supported"},
        {"{{ 0x10 }}", "only decimal numbers"},
        {"{{ '\\N{DASH}' }}", "an escape"},
        {"{{ nope.x }}", "line 1: 'nope' is undefined"},
        {"{{ nope + 1 }}", "'nope' is undefined"},
        {"{{ nope() }}", "'nope' is undefined"},
        {"{{ s + n }}", "'+' between str and int"},
        {"{{ n / 0 }}", "division by zero"},
        {"{{ n // 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ raise_exception('no ' ~ s) }}", "the template says: no word"},
        {"{{ s", "'{{' has no end"},
        {"{% if s %}", "ends before 'elif'"},
        {"{% if s %}{% endfor %}", "the tag 'endfor'"},
        {"{% endif %}", "the tag 'endif'"},
        {"{# never", "a comment has no end"},
        {"{% raw %} never", "'raw' has no end"},
        {"{{ 'never }}", "a string has no end"},
        {"{{ ? }}", "0x3f"},
        {"{{ }}", "an expression is missing"},
        {"{% break %}", "'break' is outside of a loop"},
        {"{% for x in n %}{% endfor %}", "int is no list"},
        {"{% set a, b = list %}", "too many values"},
        {"{% set d.k = 2 %}", "'d' is no namespace"},
        {"{{ list[1, 2] }}", "one index"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "no such argument"},
        {"{% macro m() %}{{ kwargs }}{% endmacro %}", "'kwargs' in a macro"},
        {"{% macro m() %}{{ varargs }}{% endmacro %}", "'varargs' in a macro"},
        {"{% macro m(caller) %}{{ caller }}{% endmacro %}", "'caller' in a"},
        {"{% macro m(kwargs) %}{% macro k() %}{{ kwargs }}{% endmacro %}"
         "{% endmacro %}", "'kwargs' in a macro"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "'b' needs a value"},
        {"{{ n|indent }}", "'indent' of int"},
        {"{% macro m() %}{{ m.arguments }}{% endmacro %}{{ m() }}",
         "'arguments' of a macro is not supported"},
        {"{{ list|map('string') }}", "put '|list' behind"},
        {"{{ list|map('string')|length }}", "generator has no length"},
        {"{{ list|select|last }}", "'last' of a generator"},
        {"{{ strftime_now('%H.%f') }}", "'%f' is not supported"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels"},
        {"{{ range(99999)|sort(reverse=true) }}", "steps"},
        {"{{ range(99999)|map('string')|unique|list|length }}", "steps"},
        {LONG_TEXT "{{ ns.t.strip(ns.t|replace('xx', 'yy') ~ 'x') }}", "steps"},
        {LONG_TEXT "{{ ns.t.rsplit(ns.t[:99999]|replace('xx', 'yx')) }}",
         "steps"},
        {LONG_TEXT MANY_TIMES("ns.t.find('zz')"), "steps"},
        {LONG_TEXT MANY_TIMES("ns.t.isdigit()"), "steps"},
        {LONG_TEXT MANY_TIMES("ns.t.count('zz')"), "steps"},
        {LONG_TEXT MANY_TIMES("ns.t.splitlines()"), "steps"},
        {LONG_TEXT MANY_TIMES("ns.t < ns.t"), "steps"},
        {"{{ range(200000)|length }}", "range of more than 100000 numbers"},
        {"{{ 'x' * 20000000 }}", "more than"},
        {"{% set ns = namespace(t='xxxxxxxxxxxxxxxx') %}"
         "{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
         "more than"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        refuses(cases[i].source, cases[i].message);
}

/* Blocks of calls, and lists that are spread over arguments. */
static void test_calls(void)
{
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"{% call f() %}{% endcall %}", "'f' is undefined"},
        {"{% call s %}{% endcall %}", "'call' is followed by no call"},
        {"{% call s|upper %}{% endcall %}", "'call' is followed by no call"},
        {"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
         "no such argument"},
        {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
         "'caller' is undefined"},
        {"{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}"
         "{% endmacro %}", "'caller' in a macro"},
        {"{{ f(**d) }}", "'**' before an argument is not supported"},
        {"{{ f(*list) }}", "'f' is undefined"},
        {"{{ f(*list, 1) }}", "an argument without a name follows"},
        {"{% macro m(a) %}{% endmacro %}{{ m(*list) }}", "no such argument"},
        {"{% macro m(a) %}{% endmacro %}{{ m(*n) }}", "int is no list"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        refuses(cases[i].source, cases[i].message);
    writes("{% macro m(a) %}{{ caller(a, 'z') }}{% endmacro %}"
           "{% call(x, y=0, z=4) m(*[3]) %}{{ x }}{{ y }}{{ z }}{% endcall %}",
           "3z4");
    writes("{% macro m(a, b, c=2) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
           "{{ m(*'xy') }}{{ m(n, *[6], c=7) }}", "xy2567");
}

/* Generators: they are true even with nothing in them, are taken once, and have
 * no elements by number. Jinja's 'else' of a loop. The texts are those of
 * transformers 5.23. */
static void test_texts(void)
{
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"{% if list|select('gt', 9) %}a{% else %}b{% endif %}", "a"},
        {"{% if list|select('gt', 9)|list %}a{% else %}b{% endif %}", "b"},
        {"{{ d|items is iterable }}{{ d|items is sequence }}", "TrueFalse"},
        {"{% set g = list|map('string') %}{{ g|join }}{{ g|join }}", "123"},
        {"{% set g = list|reverse %}{{ g|first }}{{ g|first }}", "32"},
        {"{% set g = list|unique %}{{ 2 in g }}{{ g|list }}", "True[3]"},
        {"{{ (list|reject)[0] }}{{ not [0]|select }}", "False"},
        {"{{ list|map('abs')|reverse|sum }}", "6"},
        {"{% for x in list %}{% break %}{% else %}e{% endfor %}", "e"},
        {"{% set g = [1, 2, 3]|reverse %}{% for x in g %}{{ x }}"
         "{% if x == 2 %}{% break %}{% endif %}{% endfor %}|{{ g|list }}",
         "32|[1]"},
        {"{% for x in list %}{% continue %}{% else %}e{% endfor %}", "e"},
        {"{% for x in list %}{{ x }}{% if x > 1 %}{% break %}{% endif %}"
         "{% else %}e{% endfor %}", "12"},
        {"{{ '<'|safe + '<&>' + s }}{{ '\"' + '\\''|safe + '\"' }}",
         "<&lt;&amp;&gt;word&#34;'&#34;"},
        {"{{ '<'|safe ~ '<' }}{{ ('<'|safe)|string + '<' }}", "<<<&lt;"},
        {"{{ '<b> '|safe|trim|upper + '<' }}{{ ('<b>'|safe)[1:] + '<' }}",
         "<B>&lt;b>&lt;"},
        {"{{ ('a<b'|safe).split('b')[0] + '<' }}{{ 'b'|safe|title + '<' }}",
         "a<&lt;B<"},
        {"{{ ('a'|safe).replace('a', '<') }}{{ ['<'|safe, '<'] }}",
         "&lt;[Markup('<'), '<']"},
        {"{{ ' a  b '.split(none, 1) }}", "['a', 'b ']"},
        {"{% set ns = namespace(n=0) %}{% for x in list if ns.n < 2 %}"
         "{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}", "12"},
        {"{% for x in [3, 0] if 6 // x %}{{ x }}{% break %}{% endfor %}", "3"},
        {"{% set g = list|map('abs') %}{% for x in g if x > 1 %}{{ x }}"
         "{% break %}{% endfor %}{{ g|list }}", "2[3]"},
        {"{% set g = list|map('abs') %}{% for x in g %}{{ loop.last }}"
         "{% break %}{% endfor %}{{ g|list }}", "False[3]"},
        {"{% set g = list|map('abs') %}{% for x in g %}{% for y in g %}"
         "{{ x }}{{ y }} {% endfor %}{% endfor %}", "12 13 "},
        {"{% set ns = namespace() %}{% for x in list if x != 2 %}"
         "{% set ns.l = loop %}{% endfor %}"
         "{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.previtem }}", "2True1"},
        {"{% set ns = namespace() %}{% for x in list %}{% set ns.l = loop %}"
         "{% if x == 2 %}{% break %}{% endif %}{% endfor %}"
         "{{ ns.l.index }}{{ ns.l.nextitem }}", "23"},
        {"{% macro m(kwargs, caller=2) %}{{ kwargs }}{{ caller }}{% endmacro %}"
         "{{ m(1) }}{{ m(kwargs=3, caller=4) }}", "1234"},
        {"{% macro m(a) %}{{ m.name }}{% endmacro %}{{ m(1) }}", "m"},
        {"{{ strftime_now('%Z%%Z%z|%Y') }}", "%Z|1970"},
        {"{{ '\xC3\xA9{}b{}'.format(1, s) }}{{ '{}|'.format(nope) }}",
         "\xC3\xA9""1bword|"},
        {"{{ '{1}{00}{1}'.format('x', none) }}", "NonexNone"},
        {"{{ '{k}-{{{}}}{{}}'.format(2.0, k=[1, 'q']) }}", "[1, 'q']-{2.0}{}"},
        {"{{ '{}'.format('<'|safe) + '<' }}", "<<"},
        {"{{ -0.0 }}{{ -(-0.0) }}{{ +(-0.0) }}{{ -0 }}", "-0.00.0-0.00"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        writes(cases[i].source, cases[i].text);
}

/* A range and the views of a dict are lists to loops and filters alone. The
 * texts are those of transformers 5.24. */
static void test_views(void)
{
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"{{ {'k': 1}.items()[0] }}|{{ {'k': 1}.keys()[0] }}", "|"},
        {"{{ range(4)[1] }}{{ range(4)[1:3]|list }}", "1[1, 2]"},
        {"{{ range(2) == [0, 1] }}{{ range(2) == range(0, 3, 2) }}"
         "{{ range(2) == range(2) }}{{ {}.keys() == [] }}",
         "FalseFalseTrueFalse"},
        {"{{ {}.keys() is sequence }}{{ {}.keys() is iterable }}"
         "{{ range(1) is sequence }}", "FalseTrueTrue"},
        {"{{ {}.values() or 'e' }}{{ range(0) or 'e' }}", "ee"},
        {"{{ {'k': 1, 'l': 2}.items()|last }}{{ {'k': 1}.keys()|length }}"
         "{{ 2 in {'l': 2}.values() }}", "('l', 2)1True"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        writes(cases[i].source, cases[i].text);
    refuses("{{ range(3) }}", "a range is no text: put '|list' behind it");
    refuses("{{ [{'k': 1}.keys()] }}", "a view of a dict is no text");
    refuses("{{ {'k': 1}.values()|tojson }}", "view of a dict is no JSON");
    refuses("{{ [1] + range(2) }}", "'+' between list and range");
    refuses("{{ {'k': 1}.items()[:1] }}", "view of a dict has no such slice");
    refuses("{{ {}.keys() == {}.keys() }}", "of views of dicts");
    refuses("{{ range(3).index(1) }}", "'index' of range is not supported");
}

/* Nesting of every kind ends in a message, and not at the stack's end. */
static void test_nesting(void)
{
    static const char *const parts[][3] = {
        {"{{ ", "(", ""}, {"{{ ", "[", ""},     {"{{ ", "not ", ""},
        {"{{ ", "-", ""}, {"{{ x", "[x", ""},   {"", "{% if x %}", ""},
        {"{{ x", ".a", " }}"}, {"{{ x", "|list", " }}"}, {"{{ x", "~x", " }}"},
        {"{% if x %}", "{% elif x %}", "{% endif %}"},
        {"{{ x ", "if x else x ", " }}"},
    };
    struct gpt_buf source = {0}, text = {0};
    struct gpt_err err;

    for (size_t i = 0; i < GPT_COUNT(parts); i++) {
        source.len = 0;
        bool built = gpt_buf_printf(&source, "%s", parts[i][0]) == GPT_OK;
        for (int k = 0; k < 50000; k++)
            built &= gpt_buf_printf(&source, "%s", parts[i][1]) == GPT_OK;
        built &= gpt_buf_printf(&source, "%s", parts[i][2]) == GPT_OK;
        const int status = render(source.data, NULL, NULL, 1, &text, &err);

        ok(built && status == GPT_EDATA, "50000 times '%s': %s", parts[i][1],
           err.text);
    }
    gpt_buf_free(&source);
    gpt_buf_free(&text);
}

/* Values that hold themselves many times over are compared and printed. */
static void test_depth_of_values(void)
{
    static const char source[] =
        "{% set ns = namespace(v=[]) %}{% for i in range(5000) %}"
        "{% set ns.v = [ns.v] %}{% endfor %}";
    static const char *const ends[] = {"{{ ns.v }}", "{{ ns.v|tojson }}",
                                       "{{ ns.v == [ns.v] }}"};
    struct gpt_buf whole = {0}, text = {0};
    struct gpt_err err;

    for (size_t i = 0; i < GPT_COUNT(ends); i++) {
        whole.len = 0;
        ok(gpt_buf_printf(&whole, "%s%s", source, ends[i]) == GPT_OK &&
               render(whole.data, NULL, NULL, 1, &text, &err) == GPT_EDATA &&
               strstr(err.text, "levels"),
           "%s of a deep list", ends[i]);
    }
    gpt_buf_free(&whole);
    gpt_buf_free(&text);
}

/* A list of so many elements is read in one pass, and so many variables cost
 * steps. */
static void test_sizes(void)
{
    struct gpt_buf source = {0}, text = {0};
    struct gpt_err err = {0};
    cJSON *variables = cJSON_CreateObject();

    bool built = gpt_buf_printf(&source, "{{ [0") == GPT_OK;
    for (int i = 1; i < 300000; i++)
        built &= gpt_buf_add(&source, ",0", 2) == GPT_OK;
    built &= gpt_buf_printf(&source, "]|length }}") == GPT_OK;
    ok(built && render(source.data, NULL, NULL, 1, &text, &err) == GPT_OK,
       "a list of 300000: %s", err.text);
    is_str(text.data, "300000", "has as many elements");
    for (int i = 0; i < 20000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        cJSON_AddNumberToObject(variables, name, i);
    }
    ok(render("{{ v1 }}", variables, NULL, 1, &text, &err) == GPT_EDATA &&
           strstr(err.text, "steps"),
       "20000 variables: %s", err.text);
    for (cJSON *item = cJSON_GetArrayItem(variables, 3000), *next; item;
         item = next) {
        next = item->next;
        cJSON_Delete(cJSON_DetachItemViaPointer(variables, item));
    }
    ok(render("{% for i in range(90000) %}{{ none_of_them }}{% endfor %}",
              variables, NULL, 1, &text, &err) == GPT_EDATA &&
           strstr(err.text, "steps"),
       "looking past 3000 for each of 90000 turns: %s", err.text);
    cJSON_Delete(variables);
    gpt_buf_free(&source);
    gpt_buf_free(&text);
}

int main(void)
{
    test_sizes();
    test_goldens();
    test_refusals();
    test_calls();
    test_texts();
    test_views();
    test_nesting();
    test_depth_of_values();
    return tap_done();
}
