/* The option table of gpt-generate: a row an option. */
#include "cmd/generate/options.h"

#include "backend.h"
#include "base/json.h"
#include "cmd/generate/loaded_model.h"
#include "cmd/generate/perplexity.h"
#include "generate/batch.h"

static const char *const semantics[] = {"megatron", "hf", NULL};
static const char *const early_stopping[] = {"false", "true", "never", NULL};
static const char *const detokenizers[] = {"none", "wikitext", NULL};

#define AT(field) .offset = offsetof(struct gpt_generate_options, field)
/* A row of --seed is -1 for a new seed each time, of --iteration for the newest
 * checkpoint, and of --logprobs for none, as 0 is a value of each. */
const struct gpt_opt gpt_generate_options[] = {
    /* Nothing here says how the model is made: the checkpoint does. */
    {.kind = GPT_OPT_GROUP, .help = "Model"},
    {.kind = GPT_OPT_STRING, .name = "load", .arg = "DIR", AT(load),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_DIR,
     .help = "checkpoints of a run, one of its iter_* directories, a Hugging "
             "Face directory, a file of GGUF or llm.c, or others that "
             "gpt-reshape reads"},
    {.kind = GPT_OPT_LIST, .name = "merge-adapter", .arg = "DIR", AT(adapters),
     .flags = GPT_OPT_DIR,
     .help = "adapters of PEFT (LoRA) to merge into the weights, in this "
             "order"},
    {.kind = GPT_OPT_INT, .name = "iteration", .arg = "N", AT(iteration),
     .def = "-1", .min = -1, .max = 1e15,
     .help = "which checkpoint, -1 = the newest", .alias = "ckpt-step"},
    /* A damaged weight gives a text that looks like one of a bad model, and
     * nothing would point at the damage. */
    {.kind = GPT_OPT_FLAG, .name = "verify", AT(verify), .def = "true",
     .help = "check the checkpoint's checksums first"},
    GPT_TOKENIZER_FILE_OPTIONS(struct gpt_generate_options, tokenizer, NULL, 0),
    GPT_TOKENIZER_TEXT_OPTIONS(struct gpt_generate_options, tokenizer),
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N",
     AT(tokenizer.vocab_size), .def = "0", .min = 0, .max = INT32_MAX,
     .help = "NullTokenizer: ids are below N; TikTokenizer: of the model"},
    GPT_TOKENIZER_MISMATCH_OPTION(struct gpt_generate_options,
                                  allow_vocab_mismatch),
    {.kind = GPT_OPT_GROUP, .help = "Prompts and texts"},
    /* Several prompts after one --prompt, so that the shell's patterns and
     * arrays work; given again, the option adds to the list. */
    {.kind = GPT_OPT_LIST, .letter = 'p', .name = "prompt", .arg = "TEXT",
     AT(prompt),
     .help = "how the text begins; every word is one prompt, the empty one "
             "starts a new document"},
    {.kind = GPT_OPT_LIST, .name = "prompt-file", .arg = "FILE",
     AT(prompt_file), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .alias = "sample-input-file",
     .help = "a file that is one prompt, '-' = standard input"},
    {.kind = GPT_OPT_FLAG, .name = "jsonl", AT(jsonl),
     .help = "prompt files are JSON lines with 'prompt' and 'id', and so is "
             "the output"},
    /* The name is Megatron's, which adds the end of a document, too. */
    {.kind = GPT_OPT_FLAG, .name = "add-bos", AT(add_bos), .alias = "add-BOS",
     .help = "put the end-of-document token in front of every prompt"},
    /* Megatron's name comes first of the aliases, then transformers'. They
     * count what is added; transformers' --max-length does not (foreign.c). */
    {.kind = GPT_OPT_INT, .name = "tokens", .arg = "N", AT(tokens), .def = "64",
     .min = 1, .max = 1e9,
     .alias = "num-tokens-to-generate tokens-to-generate out-seq-length "
              "max-new-tokens",
     .help = "the most tokens to add to a prompt"},
    {.kind = GPT_OPT_INT, .name = "num-samples", .arg = "N", AT(num_samples),
     .def = "1", .min = 1, .max = 1e6, .help = "texts for each prompt"},
    /* The letter is that of llama.cpp's; there is no other mode with a prompt
     * on the terminal. */
    {.kind = GPT_OPT_FLAG, .letter = 'i', .name = "interactive",
     AT(interactive), .help = "read a line, continue it, read the next"},
    {.kind = GPT_OPT_FLAG, .name = "chat", AT(chat),
     .help = "with --interactive: lines are messages of a chat, by the model's "
             "template"},
    {.kind = GPT_OPT_STRING, .name = "system-prompt", .arg = "TEXT",
     AT(system_prompt), .help = "with --chat: the first message"},
    {.kind = GPT_OPT_STRING, .name = "chat-template", .arg = "FILE",
     AT(chat_template), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "a template in place of the model's, with --chat or --serve"},
    {.kind = GPT_OPT_STRING, .name = "chat-template-kwargs", .arg = "JSON",
     AT(chat_template_kwargs),
     .help = "with --chat: an object of what else the template sees"},
    {.kind = GPT_OPT_FLAG, .name = "echo", AT(echo),
     .help = "repeat the prompt in front of the text"},
    {.kind = GPT_OPT_LIST, .name = "stop", .arg = "TEXT", AT(stop),
     .help = "end a text before the first of these strings"},
    {.kind = GPT_OPT_FLAG, .name = "ignore-eod", AT(ignore_eod),
     .help = "continue after the end of a document"},
    /* Megatron's, which know newlines by GPT-2's ids; here they are tokens of
     * any vocabulary (choice.c). They look at tokens, --stop at text. */
    {.kind = GPT_OPT_FLAG, .name = "stop-on-eol", AT(stop_on_eol),
     .help = "a token that is one or two newlines ends a text, instead of the "
             "end of a document"},
    {.kind = GPT_OPT_FLAG, .name = "stop-on-double-eol", AT(stop_on_double_eol),
     .help = "two newlines end a text, instead of the end of a document"},
    /* They are the model's own distribution, so that they do not depend on the
     * rows below, and agree with what scoring gives. */
    {.kind = GPT_OPT_INT, .name = "logprobs", .arg = "N", AT(logprobs),
     .def = "-1", .min = -1, .max = 1000,
     .help = "with --jsonl: the log-probability of each token, and of the N "
             "most probable ones beside it"},
    {.kind = GPT_OPT_FLAG, .name = "return-logits", AT(return_logits),
     .help = "with --jsonl: all logits before each token"},
    {.kind = GPT_OPT_GROUP, .help = "Choice of tokens"},
    /* In the order in which they act; the penalties act before all of them.
     * Defaults leave the model's distribution as it is, which is Megatron's
     * choice and not transformers', where top-k is 50. */
    {.kind = GPT_OPT_REAL, .name = "temperature", .arg = "X", AT(temperature),
     .def = "1", .min = 0, .max = 1000,
     .help = "below 1 the likely becomes likelier; 0 = greedy"},
    {.kind = GPT_OPT_INT, .name = "top-k", .arg = "N", AT(top_k), .def = "0",
     .min = 0, .max = 1e9,
     .help = "choose among the N most probable tokens, 0 = all"},
    {.kind = GPT_OPT_REAL, .name = "top-p", .arg = "P", AT(top_p), .def = "0",
     .min = 0, .max = 1,
     .help = "choose among the most probable tokens that together reach P, 0 = "
             "all"},
    {.kind = GPT_OPT_REAL, .name = "top-p-decay", .arg = "X", AT(top_p_decay),
     .def = "0", .min = 0, .max = 1,
     .help = "multiply P by X after each token of a text, 0 = off"},
    {.kind = GPT_OPT_REAL, .name = "top-p-bound", .arg = "P", AT(top_p_bound),
     .def = "0", .min = 0, .max = 1, .help = "the least P of --top-p-decay"},
    {.kind = GPT_OPT_REAL, .name = "min-p", .arg = "P", AT(min_p), .def = "0",
     .min = 0, .max = 1,
     .help = "drop tokens less than P times as probable as the best, 0 = off"},
    /* 0 would divide by it; the limits are far outside of what is of use, and
     * inside of what a float's logit survives. */
    {.kind = GPT_OPT_REAL, .name = "repetition-penalty", .arg = "X",
     AT(repetition_penalty), .def = "1", .min = 0.01, .max = 100,
     .help = "divide the logits of tokens in prompt and text by X, 1 = off",
     .alias = "repeat-penalty"},
    {.kind = GPT_OPT_REAL, .name = "presence-penalty", .arg = "X",
     AT(presence_penalty), .def = "0", .min = -100, .max = 100,
     .help = "subtract X from the logits of tokens in the text"},
    {.kind = GPT_OPT_REAL, .name = "frequency-penalty", .arg = "X",
     AT(frequency_penalty), .def = "0", .min = -100, .max = 100,
     .help = "the same for each time that the token is there"},
    /* A list and not a map, so that a shell can write it; -inf is what JSON has
     * no number for. */
    {.kind = GPT_OPT_LIST, .name = "logit-bias", .arg = "ID:X", AT(logit_bias),
     .help = "add X to the logit of token ID; -inf forbids it"},
    {.kind = GPT_OPT_FLAG, .name = "prevent-newline-after-colon",
     AT(prevent_newline_after_colon),
     .help = "choose no newline after a token that is a colon"},
    /* Transformers' names and defaults; Megatron's beam search has the same
     * length penalty. */
    {.kind = GPT_OPT_INT, .name = "num-beams", .arg = "N", AT(num_beams),
     .def = "1", .min = 1, .max = 1024,
     .help = "search with N beams for the most probable texts, of which "
             "--num-samples are written", .alias = "beam-width"},
    {.kind = GPT_OPT_REAL, .name = "length-penalty", .arg = "X",
     AT(length_penalty), .def = "1", .min = -100, .max = 100,
     .help = "beams are compared by log-probability / length^X"},
    {.kind = GPT_OPT_CHOICE, .name = "early-stopping", AT(early_stopping),
     .def = "false", .choices = early_stopping,
     .help = "end a search with N texts: false when no better ones are likely, "
             "true at once, never when there can be none"},
    {.kind = GPT_OPT_FLAG, .name = "greedy", AT(greedy),
     .help = "always the most probable token"},
    /* One word for all differences: a user has a program to agree with, and not
     * a boundary. */
    {.kind = GPT_OPT_CHOICE, .name = "semantics", AT(semantics),
     .def = "megatron", .choices = semantics,
     .help = "whose top-k and top-p, where ties and boundaries differ"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", AT(seed), .def = "-1",
     .min = -1, .max = (double)GPT_JSON_EXACT, .alias = "random-seed",
     .help = "of all choices, -1 = a new one each time"},
    /* Each of these names another kind of work, for which the rows above that
     * choose tokens mean nothing. */
    {.kind = GPT_OPT_GROUP, .help = "Scores in place of texts"},
    {.kind = GPT_OPT_FLAG, .name = "score", AT(score),
     .help = "log-probabilities of JSON lines with 'context' and "
             "'continuation', or with 'text', whose last word counts"},
    {.kind = GPT_OPT_FLAG, .name = "truncate-context", AT(truncate_context),
     .help = "drop the beginning of a context that is too long"},
    {.kind = GPT_OPT_CHOICE, .name = "perplexity", AT(perplexity),
     .choices = gpt_perplexity_names,
     .help = "of the prompts, or of --data-path, by this convention"},
    {.kind = GPT_OPT_STRING, .name = "data-path", .arg = "PREFIX",
     AT(data_path), .flags = GPT_OPT_SET | GPT_OPT_INPUT,
     .help = "measure the perplexity of a data set, PREFIX.bin and .idx"},
    /* A convention is a set of windows and of figures; these two change the
     * windows, and the output says so. */
    {.kind = GPT_OPT_INT, .name = "window", .arg = "N", AT(window), .def = "0",
     .min = 0, .max = 1e9,
     .help = "tokens that the perplexity of one may depend on, 0 = those of "
             "the convention"},
    {.kind = GPT_OPT_INT, .name = "overlapping-eval", .arg = "N",
     AT(overlapping_eval), .def = "0", .min = 0, .max = 1e9,
     .help = "megatron: tokens by which a window is after the last, 0 = 32, or "
             "all of a smaller one"},
    {.kind = GPT_OPT_CHOICE, .name = "detokenize", AT(detokenize),
     .def = "none", .choices = detokenizers,
     .help = "what the spaces of a text are: as they are, or WikiText's"},
    /* A request says for itself how its tokens are chosen: of the rows above
     * none has an effect there but those of the model. */
    {.kind = GPT_OPT_GROUP, .help = "Server"},
    {.kind = GPT_OPT_STRING, .name = "serve", .arg = "HOST:PORT", AT(serve),
     .help = "answer requests of OpenAI's API for completions and chats, by "
             "HTTP"},
    {.kind = GPT_OPT_STRING, .name = "served-model-name", .arg = "NAME",
     AT(served_model_name),
     .help = "what clients call the model; without it the last part of --load"},
    {.kind = GPT_OPT_STRING, .name = "api-key-file", .arg = "FILE",
     AT(api_key_file), .flags = GPT_OPT_FILE | GPT_OPT_INPUT | GPT_OPT_LOCAL,
     .help = "clients must have one of the keys in FILE, a line each"},
    {.kind = GPT_OPT_INT, .name = "max-queue", .arg = "N", AT(max_queue),
     .def = "128", .min = 1, .max = 1e6,
     .help = "requests that may wait; more are refused"},
    {.kind = GPT_OPT_INT, .name = "max-connections", .arg = "N",
     AT(max_connections), .def = "1000", .min = 1, .max = 60000,
     .help = "clients at once; more are refused"},
    {.kind = GPT_OPT_BYTES, .name = "max-request-size", .arg = "SIZE",
     AT(max_request_size), .def = "8Mi", .min = 1, .max = 1 << 30,
     .help = "of the body of a request; longer ones are refused"},
    {.kind = GPT_OPT_INT, .name = "request-timeout", .arg = "SECONDS",
     AT(request_timeout), .def = "600", .min = 0, .max = 1e6,
     .help = "a request that is not done by then is cut, 0 = none"},
    {.kind = GPT_OPT_INT, .name = "client-timeout", .arg = "SECONDS",
     AT(client_timeout), .def = "60", .min = 1, .max = 1e6,
     .help = "in which a client sends a whole request, and takes a whole "
             "answer"},
    {.kind = GPT_OPT_INT, .name = "stop-timeout", .arg = "SECONDS",
     AT(stop_timeout), .def = "30", .min = 0, .max = 1e6,
     .help = "for requests that are here when a signal stops the server"},
    /* A model with long contexts has large slots: a limit in bytes is one that
     * a user can know. */
    {.kind = GPT_OPT_BYTES, .name = "prefix-cache-size", .arg = "SIZE",
     AT(prefix_cache_size), .def = "256Mi", .min = 0, .max = 1e15,
     .help = "memory for beginnings of prompts, which are computed once; 0 = "
             "none"},
    {.kind = GPT_OPT_GROUP, .help = "Machine"},
    {.kind = GPT_OPT_STRING, .name = "device", .arg = "NAME", AT(device),
     .def = "auto", .choices = gpt_device_words,
     .help = "what computes: auto, cpu, cuda or cuda:N"},
    /* A step's time is that of reading the weights. Sums stay floats. */
    {.kind = GPT_OPT_CHOICE, .name = "weights", AT(weights), .def = "fp32",
     .choices = gpt_weight_names,
     .help = "how matrices are kept in memory: fp32, bf16, int8 with a scale "
             "for a row, int8-32 with one for 32 values"},
    /* Off by default: texts change with it. It is what other programs do with
     * such weights, and the one way to their speed where processors multiply
     * narrow numbers. */
    {.kind = GPT_OPT_FLAG, .name = "round-inputs", AT(round_inputs),
     .help = "inputs of products are rounded to the form of --weights, too"},
    /* vLLM's name, and its `auto`. Beside inputs that are rounded to bf16 or to
     * bytes, keys and values in bf16 lose little. */
    {.kind = GPT_OPT_CHOICE, .name = "kv-cache-dtype", AT(kv_cache_dtype),
     .def = "auto", .choices = gpt_cache_names,
     .help = "how keys and values are kept: fp32, bf16, or auto, which is bf16 "
             "with --round-inputs, else fp32"},
    /* More texts share a step's reading of the weights, until products take
     * longer than it. */
    {.kind = GPT_OPT_INT, .name = "batch-size", .arg = "N", AT(batch_size),
     .def = "8", .min = 1, .max = 65536,
     .help = "texts at once; what they say does not depend on it"},
    /* Every text under way has keys and values for all of its positions, and a
     * server does not know how long they will be. */
    {.kind = GPT_OPT_INT, .name = "max-positions", .arg = "N",
     AT(max_positions), .def = "0", .min = 0, .max = 1e9,
     .alias = "inference-max-seq-length max-model-len ctx-size",
     .help = "positions of a text with its prompt, 0 = all that the model has; "
             "fewer take less memory"},
    /* vLLM and llama.cpp have several kinds of it; this one needs no second
     * model. */
    {.kind = GPT_OPT_INT, .name = "speculate", .arg = "N", AT(speculate),
     .def = "0", .min = 0, .max = GPT_MOST_GUESSES,
     .help = "guess up to N tokens from what the text repeats, and check them "
             "in one step; the text stays the same"},
    /* The launcher says how many processes there are, these how they share the
     * model; names are gpt-train's. */
    {.kind = GPT_OPT_INT, .name = "tensor-model-parallel-size", .arg = "N",
     AT(tp_size), .def = "1", .min = 1, .max = 64,
     .alias = "tensor-parallel-size",
     .help = "processes that share each layer"},
    {.kind = GPT_OPT_INT, .name = "pipeline-model-parallel-size", .arg = "N",
     AT(pp_size), .def = "1", .min = 1, .max = 4096,
     .alias = "pipeline-parallel-size",
     .help = "groups of processes that share the layers"},
    {.kind = GPT_OPT_CHOICE, .name = "distributed-backend", AT(backend),
     .choices = gpt_generate_backends,
     .help = "what carries bytes between processes; nccl where each has a GPU "
             "of its own, else gloo"},
    {.kind = GPT_OPT_REAL, .name = "distributed-timeout-minutes", .arg = "M",
     AT(timeout_mins), .def = "10", .min = 0.01, .max = 1e6,
     .help = "longest wait for other processes"},
    /* In a file, since standard output is the texts' and standard error may be
     * lines for people. */
    {.kind = GPT_OPT_STRING, .name = "stats-file", .arg = "FILE",
     AT(stats_file), .flags = GPT_OPT_FILE | GPT_OPT_LOCAL,
     .help = "write tokens, times and speed as a JSON object"},
    GPT_COMMON_OPTIONS(struct gpt_generate_options, common),
};

const size_t gpt_generate_n_options = GPT_COUNT(gpt_generate_options);
