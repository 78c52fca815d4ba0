/* JSON through cJSON, with the checks that hostile files need: size, depth,
 * duplicate keys, exact integers, and errors that name file and field. */
#ifndef GPT_BASE_JSON_H
#define GPT_BASE_JSON_H

#include "base/status.h"

#include <cjson/cJSON.h>

/* The largest integer up to which numbers of JSON, which are doubles, are
 * exact. */
#define GPT_JSON_EXACT ((int64_t)1 << 53)

/* Parses all of text[0..len) (trailing white space allowed); `what` names the
 * file in errors, which carry the byte offset. Depth <= 64; duplicate keys in
 * an object are GPT_EDATA. The caller frees with cJSON_Delete(). */
int gpt_json_parse(cJSON **root, const char *text, size_t len,
                   const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Gives each number in an object or a list that was parsed of `text` its own
 * text there, as the item's valuestring: a double does not say whether it was
 * 1, 1.0 or 1e0. Copies of an item have it, too. Memory: see
 * gpt_json_out_of_memory(). */
void gpt_json_keep_numbers(cJSON *root, const char *text);
/* gpt_read_file() and gpt_json_parse(). */
int gpt_json_read(cJSON **root, const char *path, int64_t limit,
                  struct gpt_err *err) GPT_MUST_USE;

/* A member of an object; NULL where it is not there, or null, by which Python
 * writes None. */
const cJSON *gpt_json_member(const cJSON *obj, const char *key);

/* Fields of an object. Missing or of another type: GPT_EDATA naming `what` and
 * the key, or `def` when the _or form is used and the key is absent. */
int gpt_json_int(const cJSON *obj, const char *key, int64_t min, int64_t max,
                 int64_t *out, const char *what, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_json_int_or(const cJSON *obj, const char *key, int64_t def,
                    int64_t min, int64_t max, int64_t *out, const char *what,
                    struct gpt_err *err) GPT_MUST_USE;
int gpt_json_real_or(const cJSON *obj, const char *key, double def,
                     double *out, const char *what, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_json_bool_or(const cJSON *obj, const char *key, bool def, bool *out,
                     const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Borrowed from obj. */
int gpt_json_string(const cJSON *obj, const char *key, const char **out,
                    const char *what, struct gpt_err *err) GPT_MUST_USE;

/* Adds `item` to an object, or to an array when `name` is NULL. Takes the item
 * and returns it, or NULL when memory was out for it or for its parent. */
cJSON *gpt_json_add(cJSON *parent, const char *name, cJSON *item);

/* True when a function of cJSON had no memory in this thread since the last
 * call. Functions that build a tree need not look at each result: a tree is
 * complete when this is false after its last member was added. Build and print
 * a tree in one thread, or call this in the thread that has built it. */
bool gpt_json_out_of_memory(void);

/* Text of `root`, pretty or on one line; freed with cJSON_free(). Numbers that
 * are integers print as integers up to 2^53, ends of lines in Unicode are
 * escaped, and bytes that are no UTF-8 become U+FFFD. NULL when memory is out,
 * or was while the tree was built: see gpt_json_out_of_memory(). */
char *gpt_json_print(const cJSON *root, bool pretty);

#endif
