/* The template of a model's chats: what makes one text of messages, with the
 * marks that the model was trained with. It lies beside the tokenizer, as
 * chat_template.jinja or in tokenizer_config.json, or is a key of a GGUF file;
 * some models have another one for chats with tools at the same place;
 * text/jinja.h says which part of Jinja2 it may use. */
#ifndef GPT_TOKENIZER_CHAT_H
#define GPT_TOKENIZER_CHAT_H

#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

struct gpt_chat;

/* The template at `file`, or, where that is NULL, of the model in directory or
 * GGUF file `dir`; *chat is NULL when that has none. The names of special
 * tokens, which templates use, are those of `dir`. `tok` is borrowed during the
 * call. GPT_EDATA names the file and the line. */
int gpt_chat_open(struct gpt_chat **chat, const char *dir, const char *file,
                  const struct gpt_tokenizer *tok,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_chat_close(struct gpt_chat *chat); /* NULL is fine */

/* The text of the template in a tokenizer_config.json, or NULL. Several are a
 * list of names and texts, of which "default" is for chats, and "tool_use" for
 * those with tools; a template alone is the default. */
const cJSON *gpt_chat_find_template(const cJSON *config, const char *name);

/* True when the template of a chat, with tools or without, looks at the
 * variable, or at the member of a message, of that name. */
bool gpt_chat_knows(const struct gpt_chat *chat, bool tools, const char *name);

/* Appends the ids of a conversation's text. `input` is what the template sees:
 * "messages", "add_generation_prompt" and what else the caller gives; with a
 * list of "tools" it is the template for those, if there is one. The
 * tokenizer of `enc` takes names of special tokens for the tokens. GPT_EDATA: a
 * mistake of the template or of the messages, which templates refuse, too; or
 * there is no text. */
int gpt_chat_encode(const struct gpt_chat *chat, const cJSON *input,
                    struct gpt_encoder *enc, struct gpt_ids *ids,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
