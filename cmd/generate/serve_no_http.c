/* The server of a build without libmicrohttpd; see serve.h. It says so. */
#include "cmd/generate/serve.h"

#ifndef GPT_HAVE_MICROHTTPD

int gpt_http_open(struct gpt_http **http, struct gpt_server *s,
                  const char *where, struct gpt_err *err)
{
    (void)http;
    (void)s;
    (void)where;
    gpt_fail(err, GPT_EUSAGE, "--serve: this build has no libmicrohttpd");
    return gpt_hint(err, "install libmicrohttpd-dev and build again");
}

int gpt_http_start(struct gpt_http *h, struct gpt_err *err)
{
    (void)h;
    return gpt_fail(err, GPT_EFAIL, "no server");
}

void gpt_http_quiesce(struct gpt_http *h)
{
    (void)h;
}

void gpt_http_close(struct gpt_http *h)
{
    (void)h;
}

void gpt_http_wake(struct gpt_call *call)
{
    (void)call;
}

void gpt_http_wake_last(struct gpt_call *call)
{
    (void)call;
}

void gpt_http_drop(struct gpt_call *call)
{
    (void)call;
}

bool gpt_http_hung_up(const struct gpt_call *call)
{
    (void)call;
    return false;
}

void gpt_http_end_slow(struct gpt_http *h)
{
    (void)h;
}

#else

/* A file of C must hold something. */
extern struct gpt_http *gpt_no_http;

#endif
