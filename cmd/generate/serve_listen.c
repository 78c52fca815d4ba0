/* The address of a server; see serve_listen.h. Start at gpt_listen(). */
#include "cmd/generate/serve_listen.h"

#include "base/num.h"
#include "base/utf8.h"
#include "parallel/net.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The last colon divides: an address of version 6 has several, and brackets
 * around it. Without a host the server is this machine's own, which is enough
 * to try it. */
static int split_address(const char *where, char *host, size_t cap,
                         const char **port, struct gpt_err *err)
{
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    int64_t number = 0;

    if (!colon || !gpt_parse_int(colon + 1, &number) || number < 0 ||
        number > 65535 || n >= cap) {
        gpt_fail(err, GPT_EUSAGE, "--serve: '%s' is not HOST:PORT", where);
        return gpt_hint(err, ":8080 is port 8080 of this machine alone, and :0 "
                             "one that is free");
    }
    if (n > 1 && where[0] == '[' && where[n - 1] == ']') {
        where++;
        n -= 2;
    }
    memcpy(host, n ? where : "127.0.0.1", n ? n : 10);
    host[n ? n : 9] = '\0';
    *port = colon + 1;
    return GPT_OK;
}

/* The first address of the name. Every program that can reach the address can
 * use the model, so that one outside of this machine wants a key. A port that
 * was just given up may be taken again at once (SO_REUSEADDR): a server that is
 * restarted must not wait for the last packets of the old one. */
int gpt_listen(const char *where, bool has_keys, int *fd, struct gpt_err *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[256];
    const char *port = NULL;
    const int on = 1;

    GPT_TRY(split_address(where, host, sizeof(host), &port, err));
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return gpt_fail(err, GPT_EUSAGE, "--serve: '%s': %s", host,
                        gai_strerror(failed));
    int status = GPT_OK;
    if (!gpt_net_is_loopback(found->ai_addr) && !has_keys) {
        gpt_fail(err, GPT_EUSAGE,
                 "--serve: '%s' can be reached from other machines", host);
        status = gpt_hint(err, "give --api-key-file FILE, or serve at "
                               "127.0.0.1");
    }
    if (status == GPT_OK) {
        *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*fd >= 0)
            setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (*fd < 0 || bind(*fd, found->ai_addr, found->ai_addrlen) != 0 ||
            listen(*fd, 128) != 0)
            status = gpt_fail_errno(err, GPT_EIO, "cannot listen at %s:%s",
                                    host, port);
    }
    freeaddrinfo(found);
    return status;
}

bool gpt_listen_url(int fd, char *url, size_t cap)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    char host[128], port[16];

    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0 ||
        getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    /* Colons of the address must not be taken for that of the port. */
    const bool six = strchr(host, ':') != NULL;
    snprintf(url, cap, "http://%s%s%s:%s/", six ? "[" : "", host,
             six ? "]" : "", port);
    return true;
}

/* The whole of a file, which may be a pipe; the byte at its end is 0. */
static int read_keys(struct gpt_buf *text, const char *path,
                     struct gpt_err *err)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "re");
    char block[4096];
    size_t n;
    int status = GPT_OK;

    if (!f)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    while (status == GPT_OK && text->len <= MOST &&
           (n = fread(block, 1, sizeof(block), f)) > 0)
        status = gpt_buf_add(text, block, n);
    const bool failed = ferror(f);
    fclose(f);
    if (failed)
        return gpt_fail(err, GPT_EIO, "cannot read '%s'", path);
    if (status != GPT_OK || gpt_buf_add(text, "", 1) != GPT_OK)
        return gpt_no_memory(err, "keys");
    if (text->len > MOST || strlen(text->data) + 1 < text->len)
        return gpt_fail(err, GPT_EDATA, "%s: no file of keys: it %s", path,
                        text->len > MOST ? "is longer than 1 MiB"
                                         : "has a byte 0");
    return GPT_OK;
}

/* A header has no blanks at its ends, so that a key with some could not be
 * sent, and one of blanks alone would be none. */
static char *trim(char *line)
{
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n > 0 && strchr(" \t", line[n - 1]); n--)
        line[n - 1] = '\0';
    return line;
}

/* The list points into the text, which is cut into lines. */
int gpt_listen_read_keys(struct gpt_list *keys, struct gpt_buf *text,
                         const char *path, struct gpt_err *err)
{
    char *rest = NULL;
    size_t cap = 0;

    GPT_TRY(read_keys(text, path, err));
    /* an editor's byte order mark is no part of the first key */
    char *keys_begin = text->data + gpt_utf8_mark(text->data, text->len);
    for (char *line = strtok_r(keys_begin, "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        line = trim(line);
        if (!*line || *line == '#') /* a comment is no key that opens */
            continue;
        GPT_TRY(gpt_grow(&keys->items, &cap, (size_t)keys->n + 1,
                         sizeof(*keys->items), "keys", err));
        keys->items[keys->n++] = line;
    }
    return keys->n ? GPT_OK
                       : gpt_fail(err, GPT_EDATA, "%s: no key in it", path);
}
