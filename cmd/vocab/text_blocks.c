/* A corpus as blocks: see text_blocks.h. Start at gpt_blocks_next().
 *
 * A block is what was left after the last cut and about a megabyte more, up to
 * the last safe cut in it. Where there is none the block doubles, so that the
 * time stays linear however long a line is. The caller's memory goes round: a
 * block is filled in place, and only what comes after the cut is copied. */
#include "cmd/vocab/text_blocks.h"

#include "base/memory.h"
#include "text/content.h"
#include "text/input.h"
#include "text/inputs.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 1 << 20 }; /* bytes: much more than a line, less than a cache */

struct gpt_blocks {
    struct gpt_blocks_options options;
    int64_t next_input, total, closed_bytes;
    struct gpt_input *in; /* being read, or NULL */
    bool jsonl, guessed;
    bool fresh; /* nothing has been read of the open file */
    const char *name;
    int64_t line;        /* number of the line that `rest` begins in */
    struct gpt_buf rest; /* what was read after the last cut */
};

/* ---- where to cut ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_visible(char c)
{
    return c > ' ' && c < 0x7F;
}

/* Bytes up to the last safe cut, 0 = none. In JSON Lines that is after a
 * newline. In text it is between a visible ASCII character and white space: no
 * piece spans that place, and no pattern decides on one side by what is on the
 * other, for white space looks ahead only, and visible characters never look
 * behind. */
static size_t last_cut(const char *p, size_t len, bool jsonl)
{
    for (size_t i = len; i-- > 1;)
        if (jsonl ? p[i - 1] == '\n' : is_visible(p[i - 1]) && is_space(p[i]))
            return i;
    return 0;
}

/* Lines are counted once a block, after the cut, and only for messages. */
static int64_t count_lines(const char *p, size_t len)
{
    int64_t n = 0;
    const char *end = p + len;

    while ((p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        n++;
        p++;
    }
    return n;
}

/* ---- which format ---- */

/* Lists and strings are JSON, too, but a line of a corpus is an object: only a
 * brace speaks for JSON Lines. */
static bool looks_jsonl(const char *p, size_t len)
{
    size_t i = 0;

    while (i < len && is_space(p[i]))
        i++;
    return i < len && p[i] == '{';
}

/* By name before content: a text file may begin with a brace. Lines of JSON are
 * checked where they are scanned, plain text only here. */
static int decide_format(struct gpt_blocks *s, const struct gpt_block *b,
                         struct gpt_err *err)
{
    const char *path = s->options.inputs[s->next_input - 1];

    if (strcmp(s->options.format, "auto") == 0) {
        bool named = gpt_inputs_named_jsonl(path);

        s->guessed = !named && looks_jsonl(b->data, b->len);
        s->jsonl = named || s->guessed;
    } else {
        s->jsonl = strcmp(s->options.format, "jsonl") == 0;
    }
    return s->jsonl ? GPT_OK
                    : gpt_content_check_text(b->data, b->len, s->name, err);
}

/* ---- files ---- */

/* The sum of the files' sizes, for the progress line; a missing file is
 * reported now and not after hours. */
static int sum_sizes(struct gpt_blocks *s, struct gpt_err *err)
{
    for (int64_t i = 0; i < s->options.n_inputs; i++) {
        const char *path = s->options.inputs[i];
        struct stat st;

        if (strcmp(path, "-") == 0) {
            s->total = -1;
        } else if (stat(path, &st) != 0) {
            return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
        } else if (!S_ISREG(st.st_mode)) {
            s->total = -1;
        } else if (s->total >= 0) {
            s->total += st.st_size;
        }
    }
    return GPT_OK;
}

int gpt_blocks_open(struct gpt_blocks **blocks,
                    const struct gpt_blocks_options *options,
                    struct gpt_err *err)
{
    struct gpt_blocks *s;
    int status;

    *blocks = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "corpus reader", err));
    s->options = *options;
    GPT_TRY_GOTO(status, sum_sizes(s, err), fail);
    *blocks = s;
    return GPT_OK;
fail:
    gpt_free(s);
    return status;
}

/* The bytes of closed inputs are kept, so that progress counts on from one file
 * to the next. */
static void close_input(struct gpt_blocks *s)
{
    if (s->in)
        s->closed_bytes += gpt_input_consumed(s->in);
    gpt_input_close(s->in);
    s->in = NULL;
}

void gpt_blocks_close(struct gpt_blocks *s)
{
    if (!s)
        return;
    close_input(s);
    gpt_buf_free(&s->rest);
    gpt_free(s);
}

static int next_input(struct gpt_blocks *s, struct gpt_err *err)
{
    s->name = s->options.inputs[s->next_input++];
    s->line = 1;
    s->fresh = true;
    GPT_TRY(gpt_input_open(&s->in, s->name, s->options.threads, err));
    /* the name is for messages from here on */
    if (strcmp(s->name, "-") == 0)
        s->name = "(standard input)";
    return GPT_OK;
}

int64_t gpt_blocks_total(const struct gpt_blocks *s)
{
    return s->total;
}

int64_t gpt_blocks_consumed(const struct gpt_blocks *s)
{
    return s->closed_bytes + (s->in ? gpt_input_consumed(s->in) : 0);
}

/* ---- blocks ---- */

/* Reads until b is full or the file ends. A read may give less than it was
 * asked for, as from a pipe. Only a read of no bytes is the end. */
static int fill_block(struct gpt_blocks *s, struct gpt_block *b,
                      struct gpt_err *err)
{
    while (b->len < b->cap) {
        size_t got;

        GPT_TRY(gpt_input_read(s->in, b->data + b->len, b->cap - b->len, &got,
                               err));
        if (got == 0) {
            close_input(s);
            break;
        }
        b->len += got;
    }
    return GPT_OK;
}

/* Keeps what comes after the cut for the next block. */
static int keep_rest(struct gpt_blocks *s, struct gpt_block *b, size_t cut,
                     struct gpt_err *err)
{
    assert(cut > 0 && cut <= b->len);
    s->rest.len = 0;
    if (gpt_buf_add(&s->rest, b->data + cut, b->len - cut) != GPT_OK)
        return gpt_fail(err, GPT_EFAIL, "cannot allocate %zu bytes for %s",
                        b->len - cut, s->name);
    b->len = cut;
    return GPT_OK;
}

/* Fills *b with the next block of the open file; it is empty when the file is.
 * The rest is copied in the first turn alone: a block keeps what it holds when
 * it grows, so every byte is read once. The format is decided before the first
 * cut, because the cut depends on it. */
static int next_block(struct gpt_blocks *s, struct gpt_block *b,
                      struct gpt_err *err)
{
    size_t cut = 0;

    b->len = 0;
    b->begins_file = s->fresh;
    for (size_t want = s->rest.len + BLOCK;; want = 2 * b->cap) {
        GPT_TRY(gpt_grow(&b->data, &b->cap, want, 1, "a block of text", err));
        if (s->rest.len)
            memcpy(b->data, s->rest.data, s->rest.len);
        assert(b->len == 0 || s->rest.len == 0);
        b->len += s->rest.len;
        s->rest.len = 0;
        GPT_TRY(fill_block(s, b, err));
        if (s->fresh)
            GPT_TRY(decide_format(s, b, err));
        s->fresh = false;
        if (!s->in) /* the file ended */
            break;
        cut = last_cut(b->data, b->len, s->jsonl);
        if (cut) {
            GPT_TRY(keep_rest(s, b, cut, err));
            break;
        }
    }
    b->jsonl = s->jsonl;
    b->guessed = s->guessed;
    b->name = s->name;
    b->first_line = s->line;
    s->line += count_lines(b->data, b->len);
    return GPT_OK;
}

/* An empty file gives no block, so the loop turns to the next one. */
int gpt_blocks_next(struct gpt_blocks *s, struct gpt_block *b, bool *end,
                    struct gpt_err *err)
{
    *end = false;
    do {
        if (!s->in) {
            if (s->next_input == s->options.n_inputs) {
                *end = true;
                return GPT_OK;
            }
            GPT_TRY(next_input(s, err));
        }
        GPT_TRY(next_block(s, b, err));
    } while (b->len == 0);
    return GPT_OK;
}
