/* Splitting of a tokenizer.json. Start at gpt_hf_file_read(). The vocabulary
 * and the merges are most of the file, and a tree of them would take many times
 * their size. So json_scan.h passes over the file once: everything but these
 * two values is copied to a second text, with a 0 in the place of each, and
 * that small text becomes the tree. */
#include "tokenizer/tokenizer_json.h"

#include "base/memory.h"
#include "text/json_scan.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/ids.h"
#include "tokenizer/hf_files.h"

#include <assert.h>
#include <string.h>

/* A file on its way to two texts. */
struct splitting {
    struct gpt_hf_file *file;
    struct gpt_scan scan;
    struct gpt_buf rest; /* what becomes the tree */
    const char *copied;  /* up to where it is in `rest` */
};

/* Appends n bytes to the rest. */
static int copy_rest(struct splitting *s, const char *p, size_t n)
{
    return gpt_buf_add(&s->rest, p, n) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(s->scan.err, "a tokenizer");
}

/* Leaves the value under the cursor out of the rest. */
static int leave_out(struct splitting *s, struct gpt_str *value)
{
    const char *begin = (const char *)s->scan.p;

    GPT_TRY(gpt_scan_skip(&s->scan));
    *value = (struct gpt_str){begin,
                              (size_t)((const char *)s->scan.p - begin)};
    assert(begin >= s->copied); /* members come in the order of the text */
    GPT_TRY(copy_rest(s, s->copied, (size_t)(begin - s->copied)));
    s->copied = begin + value->len;
    return copy_rest(s, "0", 1);
}

static bool is_key(struct gpt_str key, const char *name)
{
    return gpt_str_equal(key, name, strlen(name));
}

/* Takes a key; the cursor is then on its value. A key with escapes is compared
 * as it is written, and so is none of those that are wanted. */
static int take_key(struct splitting *s, struct gpt_str *key)
{
    bool escaped;

    GPT_TRY(gpt_scan_key(&s->scan, key, &escaped));
    gpt_scan_space(&s->scan);
    return GPT_OK;
}

static int split_model(void *context)
{
    struct splitting *s = context;
    struct gpt_str key;

    GPT_TRY(take_key(s, &key));
    if (is_key(key, "vocab"))
        return leave_out(s, &s->file->vocab);
    if (is_key(key, "merges"))
        return leave_out(s, &s->file->merges);
    return gpt_scan_skip(&s->scan);
}

/* The vocabulary and the merges are members of `model`. */
static int split_root(void *context)
{
    struct splitting *s = context;
    struct gpt_str key;

    GPT_TRY(take_key(s, &key));
    return is_key(key, "model") && gpt_scan_at(&s->scan, '{')
               ? gpt_scan_items(&s->scan, '{', "an object", split_model, s)
               : gpt_scan_skip(&s->scan);
}

static int split_file(struct splitting *s, size_t len, struct gpt_err *err)
{
    s->copied = s->file->text;
    s->scan.begin = s->scan.p = (const uint8_t *)s->copied;
    s->scan.end = s->scan.begin + len;
    s->scan.err = err;
    GPT_TRY(gpt_scan_items(&s->scan, '{', "an object", split_root, s));
    return copy_rest(s, s->copied,
                     (size_t)((const char *)s->scan.end - s->copied));
}

int gpt_hf_file_read(struct gpt_hf_file *file, const char *path,
                     struct gpt_err *err)
{
    struct splitting s = {.file = file};
    size_t len;
    int status;

    *file = (struct gpt_hf_file){0};
    /* a GGUF file holds the same among its keys */
    GPT_TRY(gpt_gguf_read(GPT_HF_TOKENIZER, &file->text, &len, path,
                          GPT_VOCAB_FILE_MAX, err));
    status = split_file(&s, len, err);
    if (status != GPT_OK) {
        gpt_context(err, "%s", path);
        goto out;
    }
    status = gpt_json_parse(&file->root, s.rest.data, s.rest.len, path, err);
out:
    gpt_buf_free(&s.rest);
    return status;
}

void gpt_hf_file_close(struct gpt_hf_file *file)
{
    cJSON_Delete(file->root);
    gpt_free(file->text);
}
