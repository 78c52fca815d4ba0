/* What Hugging Face's libraries call the files of a vocabulary, in a model's
 * directory as in a checkpoint here. checkpoint/huggingface/huggingface.h has
 * those of weights. */
#ifndef GPT_TOKENIZER_HF_FILES_H
#define GPT_TOKENIZER_HF_FILES_H

#define GPT_HF_VOCAB "vocab.json"
#define GPT_HF_MERGES "merges.txt"
#define GPT_HF_TOKENIZER "tokenizer.json"
#define GPT_HF_PIECES "tokenizer.model" /* of SentencePiece, or ranks */
#define GPT_HF_TOKENIZER_CONFIG "tokenizer_config.json"
#define GPT_HF_SPECIAL_TOKENS "special_tokens_map.json"
#define GPT_HF_ADDED_TOKENS "added_tokens.json"
#define GPT_HF_CHAT_TEMPLATE "chat_template.jinja"
/* a directory of more, NAME.jinja */
#define GPT_HF_TEMPLATES "additional_chat_templates"

#endif
