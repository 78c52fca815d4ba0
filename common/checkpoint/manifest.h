/* What the two halves of the native checkpoint share: names, and the text of
 * manifest.json with its own checksum. Private to native_*.c. */
#ifndef GPT_CHECKPOINT_MANIFEST_H
#define GPT_CHECKPOINT_MANIFEST_H

#include "base/json.h"
#include "base/memory.h"

#define GPT_MANIFEST "manifest.json"
#define GPT_TRACKER "latest_checkpointed_iteration.txt"

enum {
    GPT_MANIFEST_VERSION = 1,
    GPT_MANIFEST_LIMIT = 64 << 20,
};

/* b holds a JSON object without its last brace, ending in "," and newline:
 * adds the checksum of that text as the last member, and the brace. */
int gpt_manifest_seal(struct gpt_buf *b) GPT_MUST_USE;

/* Reads DIR/manifest.json: GPT_EDATA when it is missing, cut short, altered,
 * or of a newer version. Freed with cJSON_Delete(). */
int gpt_manifest_read(cJSON **root, const char *dir, struct gpt_err *err)
    GPT_MUST_USE;

/* A file name that stays in its directory and prints as it is. */
bool gpt_manifest_name_ok(const char *name);

/* The iterations under root, newest first; *list is freed with gpt_free(). */
int gpt_checkpoint_list(const char *root, int64_t **list, size_t *n,
                        struct gpt_err *err) GPT_MUST_USE;
/* "ROOT/iter_0000100". */
int gpt_checkpoint_path(char *buf, size_t cap, const char *root,
                        int64_t iteration, struct gpt_err *err) GPT_MUST_USE;
/* What the tracker says; GPT_EDATA when it is missing or not a number. */
int gpt_checkpoint_tracker(const char *root, int64_t *iteration,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
