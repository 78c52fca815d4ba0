/* The server: OpenAI's completions and chats over HTTP, from one model.
 *
 * Two threads. The one of the HTTP library (serve_http.c) reads requests, turns
 * them into calls (serve_call.c) and sends what calls have written. The main
 * thread (serve.c, serve_texts.c) takes calls from the queue into a batch,
 * whose steps all texts under way share, and writes answers into the calls. A
 * call is theirs together: what both touch is guarded by the server's lock. */
#ifndef GPT_CMD_GENERATE_SERVE_H
#define GPT_CMD_GENERATE_SERVE_H

#include "cmd/generate/loaded_model.h"
#include "generate/text.h"

#include <pthread.h>

/* An answer may be as long as so many of the longest requests, and so may the
 * bodies of all requests that are here. All answers together may be as long as
 * so many; the longest makes room for the others. */
enum { GPT_CALL_REQUESTS = 32, GPT_ANSWERS_REQUESTS = 64 };

/* One prompt of a call. */
struct gpt_call_prompt {
    struct gpt_ids ids;
    const char *string; /* what it was given as, in the call's arena, or NULL:
                         * a list of ids, or a chat */
    size_t hidden; /* ids at its beginning that are none of the string's */
};

/* One text of a call. */
struct gpt_call_text {
    struct gpt_call *call;
    int64_t prompt, sample; /* index of the prompt and of the choice in it */
    struct gpt_text text;
    struct gpt_buf out; /* text that is not yet in the answer */
    /* JSON; a chat's tokens are objects with all of it */
    struct gpt_buf tokens, token_logprobs, top_logprobs, offsets;
    size_t held; /* of these, in the bytes of the call */
    int64_t n_tokens, n_chars;
    bool begun; /* of a stream of a chat: its role was sent */
    enum gpt_finish finish;
};

/* A request to make texts, and its answer. */
struct gpt_call {
    struct gpt_call *next; /* in the queue */
    struct gpt_call *beside; /* of those that are here; guarded by the lock */
    struct gpt_server *server;
    /* what was asked for; written once, before the call is queued */
    uint64_t number;
    int64_t created; /* seconds since 1970 */
    bool chat, stream, echo, usage;
    int64_t n, max_tokens;
    double deadline; /* by gpt_now() */
    uint64_t seed;
    struct gpt_choice choice;
    struct gpt_list stops;
    struct gpt_call_prompt *prompts; /* (n_prompts) */
    int64_t n_prompts;
    struct gpt_call_text *texts; /* (n_prompts * n) */
    struct gpt_arena arena;
    const char *code; /* why it is refused, as gpt_answer_error() has it */
    int fd; /* of its connection */
    /* how far it is; the main thread's */
    int64_t wanted, begun, ended; /* texts */
    int64_t prompt_tokens, cached_tokens, new_tokens;
    struct gpt_call_text repeated; /* a prompt, for its texts to begin with; */
    bool repeats;                  /* there is one */
    size_t bytes; /* that its texts hold, and the prompt that is repeated */
    int cut; /* 0, or the status of HTTP with which it ends early */
    /* guarded by the lock */
    struct gpt_buf answer; /* bytes to be sent */
    size_t sent;
    size_t counted; /* of what it holds, in the server's answer_bytes */
    int status;   /* of HTTP, once it is known */
    bool done;    /* nothing will be added to the answer */
    bool gone;    /* its client is not there any more */
    int owners;   /* of the two threads; the last one frees it */
    bool waiting; /* its connection sleeps until there is more */
    void *connection, *client;
};

struct gpt_server {
    struct gpt_loaded *m;
    const char *model;           /* the name that clients give */
    struct gpt_encoder *encoder; /* the HTTP thread's, */
    struct gpt_encoder *chat_encoder; /* and for texts of the template */
    struct gpt_list keys;        /* any of these is wanted; none: no key */
    char no_chat[800]; /* why the model's template is not known, or empty */
    pthread_mutex_t lock;
    pthread_cond_t more;           /* the queue is not empty any more */
    struct gpt_call *first, *last; /* the queue */
    struct gpt_call *running;      /* whose texts are all begun */
    int64_t queued, active; /* calls of which no text is begun; other ones */
    struct gpt_call *here; /* all whose connections are there */
    size_t answer_bytes;   /* that calls hold: answers made and not taken */
    bool closing;                  /* no new calls */
    /* counters since the start, guarded by the lock */
    uint64_t calls, refused, cut, untaken;
    uint64_t prompt_tokens, cached_tokens, new_tokens;
    uint64_t prompt_passes; /* that prompts went through the model in */
    int64_t prefixes, prefix_tokens, prefix_bytes; /* kept now */
    double started;
};

/* Serves until a signal asks to stop; texts under way are then finished. The
 * model is open without a decoder. */
int gpt_serve(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

/* ---- calls (serve_call.c) ---- */

/* Makes a call of a request's body: a completion's, or a chat's. GPT_EDATA: the
 * client's mistake, for which *code is set where the API has a word for it;
 * GPT_EUSAGE: it wants another model. */
int gpt_call_parse(struct gpt_call **call, struct gpt_server *s, bool chat,
                   const char *body, size_t len, const char **code,
                   struct gpt_err *err) GPT_MUST_USE;
/* GPT_EUSAGE where a body names another model than the one that is served. */
int gpt_call_check_model(const struct gpt_server *s, const cJSON *body,
                         struct gpt_err *err) GPT_MUST_USE;
/* The ids of a chat's messages, by the model's template (serve_chat.c). */
int gpt_call_read_chat(const struct gpt_server *s, const cJSON *body,
                       struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;
void gpt_call_free(struct gpt_call *call);
void gpt_call_free_texts(struct gpt_call *call); /* of one that is over */
void gpt_call_text_free(struct gpt_call_text *t);

/* ---- the queue (serve_queue.c); the main thread takes from it ---- */

struct gpt_call_text *gpt_calls_next(struct gpt_server *s, bool wait);
void gpt_calls_take(struct gpt_server *s, struct gpt_call_text *t);
void gpt_calls_leave(struct gpt_server *s, struct gpt_call *call,
                     struct gpt_call *before);
void gpt_calls_end(struct gpt_server *s, struct gpt_call *call);
/* One of the two threads has nothing to do with a call any more: the last one
 * frees it. The lock is held in both. */
bool gpt_calls_disown(struct gpt_call *call);
/* Counts the bytes that a call holds now, of which the main thread knows; when
 * all hold too many, the one that holds most is cut, or its connection closed
 * where it is done and waits for its client. */
void gpt_calls_count(struct gpt_call *call);
void gpt_calls_close(struct gpt_server *s);

/* ---- answers (serve_answer.c); GPT_EFAIL: out of memory ---- */

/* A token of a prompt that is repeated, into `echo`. */
int gpt_answer_prompt(const struct gpt_server *s, struct gpt_call_text *echo,
                      int32_t id, double logprob, const struct gpt_top *top,
                      int64_t n_top) GPT_MUST_USE;
/* The prompt that is repeated, into a text that follows it. */
int gpt_answer_echo(struct gpt_call_text *t,
                    const struct gpt_call_text *echo) GPT_MUST_USE;
/* A token of a text, into the text. */
int gpt_answer_token(const struct gpt_server *s, struct gpt_call_text *t,
                     int32_t id, double logprob, const struct gpt_top *top,
                     int64_t n_top) GPT_MUST_USE;
/* The token that ends a text: its probabilities alone. */
int gpt_answer_end(const struct gpt_server *s, struct gpt_call_text *t,
                   int32_t id, double logprob, const struct gpt_top *top,
                   int64_t n_top) GPT_MUST_USE;
/* What a stream sends of a text now; with `end` its last piece. */
int gpt_answer_piece(const struct gpt_server *s, struct gpt_call_text *t,
                     bool end, struct gpt_buf *out) GPT_MUST_USE;
/* The end of a stream. */
int gpt_answer_stream_end(const struct gpt_server *s,
                          const struct gpt_call *call,
                          struct gpt_buf *out) GPT_MUST_USE;
/* The whole answer of a call that is no stream. */
int gpt_answer_whole(const struct gpt_server *s, const struct gpt_call *call,
                     struct gpt_buf *out) GPT_MUST_USE;
/* An error as OpenAI's API has it. A text that begins with a name in single
 * quotes is about that field of the request, its `param`. The code is the API's
 * word for what went wrong; NULL: the one of the status, or none. */
int gpt_answer_error(int status, const char *code, const char *text,
                     struct gpt_buf *out) GPT_MUST_USE;

/* ---- HTTP (serve_http.c) ---- */

struct gpt_http;
/* Takes the address "HOST:PORT"; clients that connect wait until the start,
 * which prints where. */
int gpt_http_open(struct gpt_http **http, struct gpt_server *s,
                  const char *where, struct gpt_err *err) GPT_MUST_USE;
int gpt_http_start(struct gpt_http *http, struct gpt_err *err) GPT_MUST_USE;
/* Takes no new connections, but sends what calls have. */
void gpt_http_quiesce(struct gpt_http *http);
void gpt_http_close(struct gpt_http *http); /* NULL is fine */
/* Ends connections of clients that take too long for a request or an answer;
 * called now and then by the main thread. */
void gpt_http_end_slow(struct gpt_http *http);
/* Wakes the connection of a call that has more; the lock is held. */
void gpt_http_wake(struct gpt_call *call);
/* The same for one that is done: its client has to take what is left. */
void gpt_http_wake_last(struct gpt_call *call);
/* Ends the connection of a call that is done; the lock is held. */
void gpt_http_drop(struct gpt_call *call);
/* True when the client of a waiting call has hung up; the lock is held. */
bool gpt_http_hung_up(const struct gpt_call *call);

#endif
