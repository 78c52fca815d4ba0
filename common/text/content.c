/* Formats that are often given in place of text. A new one is a row; the
 * commands are those that a Debian system has, or that users of such files
 * have. */
#include "text/content.h"

#include <string.h>

static const struct row {
    const char *magic;
    size_t len, at; /* bytes, and where they are */
    const char *what;
    const char *advice; /* with %s for the name of the file */
} rows[] = {
    {"PAR1\x15", 5, 0, "a Parquet file",
     "duckdb -c \"copy (from '%s') to 'new.jsonl' (format json)\" makes JSON "
     "lines of it"},
    {"ARROW1\0\0", 8, 0, "an Arrow file",
     "write it as JSON lines with the library that made it (of Hugging Face "
     "datasets: to_json())"},
    {"\xFF\xFF\xFF\xFF", 4, 0, "an Arrow stream",
     "write it as JSON lines with the library that made it (of Hugging Face "
     "datasets: to_json())"},
    {"PK\x03\x04", 4, 0, "a zip archive",
     "unzip -p '%s' gives what is in it: read that as standard input"},
    {"ustar", 5, 257, "a tar archive",
     "tar -xOf '%s' gives the files in it, one after the other: read that as "
     "standard input"},
    {"7z\xBC\xAF\x27\x1C", 6, 0, "a 7z archive",
     "7z x -so '%s' gives what is in it: read that as standard input"},
    {"\xFF\xFE", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16 -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"\xFE\xFF", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16 -t UTF-8 '%s' >new makes UTF-8 of it"},
    /* The beginning of JSON without a byte order mark. */
    {"{\0", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16LE -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"\0{", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16BE -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"MMIDIDX\0", 8, 0, "the index of a data set",
     "it is made of tokens already: training reads it as it is"},
};

/* The table's "%s" is replaced here, as a format must be a literal. */
static void advise(struct gpt_err *err, const char *advice, const char *name)
{
    const char *mark = strstr(advice, "%s");

    if (mark)
        gpt_hint(err, "%.*s%s%s", (int)(mark - advice), advice, name, mark + 2);
    else
        gpt_hint(err, "%s", advice);
}

int gpt_content_check(const void *bytes, size_t n, const char *name,
                      struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct row *r = &rows[i];

        if (n < r->at + r->len ||
            memcmp((const char *)bytes + r->at, r->magic, r->len) != 0)
            continue;
        gpt_fail(err, GPT_EDATA, "%s: not text: it is %s", name, r->what);
        advise(err, r->advice, name);
        return GPT_EDATA;
    }
    return GPT_OK;
}
