/* The store: several ranks and a server, barriers and failures, and a server
 * that survives hostile clients. */
#include "parallel/store.h"

#include "tests/lib/tap.h"

#include "base/memory.h"
#include "parallel/store_wire.h"
#include "tests/lib/must.h"
#include "tests/unit/store_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- values ---- */

static void test_values(struct gpt_store *s, const char *where)
{
    struct gpt_err err = {0};
    void *value = NULL;
    size_t len = 0;
    int64_t n = -1;
    bool exists = true;

    ok(gpt_store_check(s, "a", &exists, &err) == GPT_OK && !exists,
       "%s: no such key yet", where);
    is_int(gpt_store_set(s, "a", "x\0y", 3, &err), GPT_OK, "set");
    ok(gpt_store_check(s, "a", &exists, &err) == GPT_OK && exists, "there");
    ok(gpt_store_get(s, "a", 1, &value, &len, &err) == GPT_OK && len == 3 &&
           memcmp(value, "x\0y", 4) == 0,
       "get");
    gpt_free(value);
    is_int(gpt_store_set(s, "a", "", 0, &err), GPT_OK, "set to nothing");
    ok(gpt_store_get(s, "a", 1, &value, &len, &err) == GPT_OK && len == 0,
       "get nothing");
    gpt_free(value);
    ok(gpt_store_add(s, "n", 5, &n, &err) == GPT_OK && n == 5, "add");
    ok(gpt_store_add(s, "n", -7, &n, &err) == GPT_OK && n == -2, "add less");
    ok(gpt_store_get(s, "missing", 0.05, &value, &len, &err) == GPT_EFAIL &&
           strstr(err.text, "'missing' was not set") &&
           strstr(err.text, "0.05 s"),
       "%s", err.text);

    char *big = gpt_alloc(GPT_STORE_VALUE + 1, 1);
    memset(big, 'b', GPT_STORE_VALUE);
    is_int(gpt_store_set(s, "big", big, GPT_STORE_VALUE, &err), GPT_OK,
           "the largest value");
    ok(gpt_store_get(s, "big", 1, &value, &len, &err) == GPT_OK &&
           len == GPT_STORE_VALUE && memcmp(value, big, len) == 0,
       "comes back");
    gpt_free(value);
    is_int(gpt_store_set(s, "big", big, GPT_STORE_VALUE + 1, &err), GPT_EFAIL,
           "%s", err.text);
    big[GPT_STORE_KEY] = '\0';
    is_int(gpt_store_set(s, big, "", 0, &err), GPT_EFAIL, "%s", err.text);
    gpt_free(big);
}

static void test_world_of_one(void)
{
    struct gpt_launch_env l = launch(1, 0, 1, true); /* nobody listens there */
    struct gpt_store *s;
    struct gpt_err err = {0}, failure;

    is_int(gpt_store_open(&s, &l, 0, &err), GPT_OK, "a world of one");
    test_values(s, "world of one");
    is_int(gpt_store_barrier(s, "b", 0, &err), GPT_OK, "barrier");
    is_int(gpt_store_barrier(s, "b", 0, &err), GPT_OK, "barrier again");
    ok(!gpt_store_failed(s, &failure), "no failure");
    gpt_store_close(s);
}

static void test_connected(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *s = join(v, 2, 1);

    test_values(s, "server");
    gpt_store_close(s);
    gpt_store_server_close(v, 1);
}

/* ---- several ranks ---- */

enum { RANKS = 4, ROUNDS = 5 };

struct member {
    int64_t rank, port;
    int wrong;
};

static void *be_member(void *arg)
{
    struct member *m = arg;
    struct gpt_launch_env l = launch(RANKS, m->rank, m->port, false);
    struct gpt_store *s;
    struct gpt_err err = {0};
    char key[32];

    if (gpt_store_open(&s, &l, 60, &err) != GPT_OK) {
        printf("# rank %lld: %s\n", (long long)m->rank, err.text);
        m->wrong = 1000;
        return NULL;
    }
    for (int64_t i = 0; i < ROUNDS; i++) {
        int64_t n;

        snprintf(key, sizeof(key), "%lld/%lld", (long long)i,
                 (long long)m->rank);
        m->wrong += gpt_store_set(s, key, &m->rank, sizeof(m->rank), &err);
        m->wrong += gpt_store_add(s, "count", 1, &n, &err);
        m->wrong += gpt_store_barrier(s, "round", 60, &err);
        m->wrong += gpt_store_add(s, "count", 0, &n, &err);
        m->wrong += n < (i + 1) * RANKS;
        for (int64_t r = 0; r < RANKS; r++) {
            void *value;
            size_t len;
            bool there;

            snprintf(key, sizeof(key), "%lld/%lld", (long long)i, (long long)r);
            m->wrong += gpt_store_check(s, key, &there, &err) || !there;
            if (gpt_store_get(s, key, 5, &value, &len, &err) == GPT_OK) {
                m->wrong += len != 8 || memcmp(value, &r, 8) != 0;
                gpt_free(value);
            } else {
                m->wrong++;
            }
        }
    }
    gpt_store_close(s);
    return NULL;
}

static void test_ranks(void)
{
    struct member members[RANKS];
    pthread_t threads[RANKS];
    int64_t port = free_port();

    /* rank 0, who serves, comes last */
    for (int64_t r = RANKS - 1; r >= 0; r--) {
        members[r] = (struct member){r, port, 0};
        pthread_create(&threads[r], NULL, be_member, &members[r]);
    }
    for (int64_t r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        is_int(members[r].wrong, 0, "rank %lld of %d", (long long)r, RANKS);
    }
}

static void test_barrier_late(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *a = join(v, 4, 0), *b = join(v, 4, 2);
    struct gpt_err err = {0};

    is_int(gpt_store_barrier(a, "data", 0.01, &err), GPT_EFAIL, "late");
    is_str(err.text, "ranks 1, 2, 3 have not come to 'data' within 0.01 s",
           "three are missing");
    is_int(gpt_store_barrier(b, "data", 0.01, &err), GPT_EFAIL, "late");
    is_str(err.text, "ranks 1, 3 have not come to 'data' within 0.01 s",
           "two are missing");
    struct gpt_store *c = join(v, 4, 3);
    is_int(gpt_store_barrier(c, "data", 0.01, &err), GPT_EFAIL, "late");
    is_str(err.text, "rank 1 has not come to 'data' within 0.01 s",
           "one is missing");
    struct gpt_store *d = join(v, 4, 1);
    is_int(gpt_store_barrier(d, "data", 60, &err), GPT_OK, "all are there");
    gpt_store_close(a);
    gpt_store_close(b);
    gpt_store_close(c);
    gpt_store_close(d);
    gpt_store_server_close(v, 1);
}

static void test_failures(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *a = join(v, 3, 0), *b = join(v, 3, 1);
    struct gpt_err err = {0};
    const struct gpt_err first = {GPT_EDEVICE, 1, "out of memory", ""};
    const struct gpt_err second = {GPT_EFAIL, 0, "lost rank 1", ""};
    struct gpt_err seen = {.rank = -9};

    ok(!gpt_store_failed(a, &seen), "no failure yet");
    is_int(gpt_store_post_failure(b, &first, &err), GPT_OK, "rank 1 posts");
    is_int(gpt_store_post_failure(a, &second, &err), GPT_OK,
           "rank 0 posts later");
    ok(gpt_store_failed(a, &seen) && seen.rank == 1, "rank 1");
    is_str(seen.text, "out of memory", "the first report wins");
    is_int(seen.status, GPT_EDEVICE, "with its status");
    ok(!gpt_store_failed(b, &seen) && seen.rank == 1, "not for itself");
    ok(gpt_store_barrier(a, "x", 20, &err) == GPT_EFAIL &&
           strstr(err.text, "barrier 'x': rank 1 failed: out of memory"),
       "%s", err.text);
    gpt_store_server_close(v, 0);
    ok(gpt_store_failed(a, &seen) && seen.rank == -1 &&
           strstr(seen.text, "the store of the launcher at 127.0.0.1:"),
       "server gone: %s", seen.text);
    int64_t n;
    is_int(gpt_store_add(a, "n", 1, &n, &err), GPT_EIO, "and stays lost: %s",
           err.text);
    gpt_store_close(a);
    gpt_store_close(b);
}

/* Two processes with the number of one rank. */
static void test_places(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *a = join(v, 3, 1), *b = join(v, 3, 1);
    struct gpt_err err = {0}, seen = {.rank = -9};
    void *first = NULL;

    is_int(gpt_store_set_once(a, "k", "one", 3, &first, &err), GPT_OK, "set");
    is_str(first, "one", "its own value");
    gpt_free(first);
    is_int(gpt_store_set_once(b, "k", "two", 3, &first, &err), GPT_OK, "late");
    is_str(first, "one", "the value that was there");
    gpt_free(first);
    is_int(gpt_store_take_place(a, "rank", 1, "x", &err), GPT_OK, "rank 1");
    is_int(gpt_store_take_place(a, "node", 1, "x", &err), GPT_OK, "node 1");
    is_int(gpt_store_take_place(b, "rank", 2, "x", &err), GPT_OK, "rank 2");
    ok(gpt_store_take_place(b, "rank", 1, "each has one", &err) ==
               GPT_EUSAGE &&
           strcmp(err.text, "two processes are rank 1, one at 127.0.0.1 and "
                            "one at 127.0.0.1, or a job before this one had "
                            "the same store; each has one") == 0,
       "%s", err.text);
    gpt_fail_on_rank(&err, 1);
    is_int(gpt_store_post_failure(b, &err, &seen), GPT_OK, "b posts");
    ok(gpt_store_failed(a, &seen) && seen.rank == 1, "a has not posted it");
    ok(!gpt_store_failed(b, &seen), "b has");
    gpt_store_close(a);
    gpt_store_close(b);
    gpt_store_server_close(v, 1);
}

/* ---- hostile clients ---- */

#define LEN(byte0, byte1, byte2) byte0 byte1 byte2 "\0\0\0\0\0"
#define HUGE_LEN "\0\0\0\0\0\0\0\x80"

static void test_hostile(void)
{
#define BYTES(text) text, sizeof(text) - 1
    static const struct {
        const char *what, *bytes;
        size_t n;
    } rows[] = {
        {"no VALIDATE", BYTES("\x0d"
                              "abcd")},
        {"a wrong magic", BYTES("\0abcd")},
        {"HTTP", BYTES("GET / HTTP/1.1\r\n\r\n")},
        {"an unknown code", BYTES(VALID "\x0e")},
        {"code 255", BYTES(VALID "\xff")},
        {"a key too long", BYTES(VALID "\3" LEN("\x01", "\x20", "\0"))},
        {"a huge key", BYTES(VALID "\3" HUGE_LEN)},
        {"a key of -1 bytes",
         BYTES(VALID "\3\xff\xff\xff\xff\xff\xff\xff\xff")},
        {"a value too long",
         BYTES(VALID "\1" LEN("\1", "\0", "\0") "k" LEN("\1", "\0", "\x80"))},
        {"too many keys", BYTES(VALID "\6" LEN("\1", "\0", "\2"))},
        {"huge number of pairs", BYTES(VALID "\x0b" HUGE_LEN)},
        {"an ADD to what is no number",
         BYTES(VALID "\1" LEN("\1", "\0", "\0") "t" LEN(
             "\1", "\0", "\0") "x"
                               "\4" LEN("\1", "\0", "\0") "t" LEN("\1", "\0",
                                                                  "\0"))},
        {"an ADD that overflows",
         BYTES(VALID
               "\4" LEN("\1", "\0", "\0") "o"
                                          "\xff\xff\xff\xff\xff\xff\xff\x7f"
                                          "\4" LEN("\1", "\0", "\0") "o" LEN(
                                              "\1", "\0", "\0"))},
    };
    struct gpt_store_server *v = serve();
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        char sink[64];
        ssize_t got;
        int fd = raw_connect(gpt_store_server_port(v));

        if (send(fd, rows[i].bytes, rows[i].n, MSG_NOSIGNAL) < 0)
            exit(1);
        do
            got = recv(fd, sink, sizeof(sink), 0);
        while (got > 0);
        /* closed (with data unread: reset), and not by running out of time */
        ok(got == 0 || errno == ECONNRESET, "dropped: %s", rows[i].what);
        close(fd);
    }
    /* halves of a message, and a client that only comes and goes */
    for (size_t n = 0; n < 14; n++) {
        int fd = raw_connect(gpt_store_server_port(v));

        if (send(fd, VALID "\1" LEN("\4", "\0", "\0") "half", n, MSG_NOSIGNAL) <
            0)
            exit(1);
        close(fd);
    }
    struct gpt_store *s = join(v, 2, 0);
    int64_t n = 0;
    ok(gpt_store_add(s, "alive", 3, &n, &err) == GPT_OK && n == 3,
       "the server lives");
    gpt_store_close(s);
    gpt_store_server_close(v, 1);
}

static void expect_bytes(int fd, const char *want, size_t n, const char *what)
{
    char got[64] = {0};
    size_t have = 0;

    while (have < n) {
        ssize_t k = recv(fd, got + have, n - have, 0);

        if (k <= 0)
            break;
        have += (size_t)k;
    }
    ok(have == n && memcmp(got, want, n) == 0, "%s", what);
}

/* A PING of `nonce` must be the next thing that is answered. */
static void expect_ping(int fd, const char *nonce, const char *what)
{
    char ping[6] = "\x0d";

    memcpy(ping + 1, nonce, 4);
    if (send(fd, ping, 5, MSG_NOSIGNAL) != 5)
        exit(1);
    expect_bytes(fd, nonce, 4, what);
}

/* In a list of pairs every second string is a value, and values alone may be
 * longer than keys. */
static void test_lengths(void)
{
    struct gpt_buf b = {0};
    char *text = calloc(1, GPT_STORE_KEY + 1);

    for (int long_key = 0; text && long_key < 2; long_key++) {
        struct gpt_wire_request r = {0};

        b.len = 0;
        must(gpt_wire_put_code(&b, GPT_WIRE_MULTI_SET), NULL);
        must(gpt_wire_put_u64(&b, 2), NULL);
        for (int i = 0; i < 4; i++)
            must(gpt_wire_put_bytes(&b, text, i % 2 || (long_key && i == 2)
                                                  ? GPT_STORE_KEY + 1
                                                  : 1), NULL);
        is_int(gpt_wire_read(&r, (const uint8_t *)b.data, b.len),
               long_key ? GPT_WIRE_BAD : GPT_WIRE_DONE, "a long %s of a list",
               long_key ? "key" : "value");
        gpt_wire_free(&r);
    }
    gpt_buf_free(&b);
    free(text);
}

static void test_raw(void)
{
    struct gpt_store_server *v = serve();
    int fd = raw_connect(gpt_store_server_port(v));
    int other = raw_connect(gpt_store_server_port(v));
#define SEND(to, text)                                              \
    do {                                                            \
        if (send((to), (text), sizeof(text) - 1, MSG_NOSIGNAL) < 0) \
            exit(1);                                                \
    } while (0)

    static const char slow[] =
        VALID "\x0b" LEN("\2", "\0", "\0") /* MULTI_SET of two */
        LEN("\1", "\0", "\0") "p" LEN("\2", "\0", "\0") "pp" /**/
        LEN("\1", "\0", "\0") "q" LEN("\0", "\0", "\0")      /* q is empty */
        "\x0a" LEN("\2", "\0", "\0")                         /* MULTI_GET */
        LEN("\1", "\0", "\0") "q" LEN("\1", "\0", "\0") "p";
    for (size_t i = 0; i + 1 < sizeof(slow); i++) {
        if (send(fd, slow + i, 1, MSG_NOSIGNAL) != 1)
            exit(1);
        if (i % 16 == 0)
            usleep(500);
    }
    expect_bytes(fd, LEN("\0", "\0", "\0") LEN("\2", "\0", "\0") "pp", 18,
                 "requests byte by byte");

    SEND(fd, "\6" LEN("\2", "\0", "\0")
                 LEN("\1", "\0", "\0") "p" LEN("\1", "\0", "\0") "w");
    SEND(other, VALID "\1" LEN("\1", "\0", "\0") "w" LEN("\0", "\0", "\0"));
    expect_bytes(fd, "\0", 1, "a WAIT ends when another client sets the key");
    SEND(fd, "\6" LEN("\1", "\0", "\0") LEN("\1", "\0", "\0") "z");
    SEND(fd, "\x0c");
    expect_bytes(fd, "\1", 1, "a WAIT is cancelled");
    expect_ping(fd, "abcd", "and requests go on");
    SEND(fd, "\6" LEN("\1", "\0", "\0") LEN("\1", "\0", "\0") "z");
    expect_ping(other, "efgh", "a client that waits holds up nobody");
    SEND(fd, "\x0c\x0d"
             "1234");
    expect_bytes(fd,
                 "\1"
                 "1234",
                 5, "in order");

    SEND(fd, "\2" LEN("\1", "\0", "\0") "c" LEN("\1", "\0", "\0") "x" LEN(
                 "\1", "\0", "\0") "y");
    expect_bytes(fd, LEN("\1", "\0", "\0") "x", 9,
                 "COMPARE_SET of no key: the expected value comes back");
    SEND(fd, "\2" LEN("\1", "\0", "\0") "c" LEN("\0", "\0", "\0")
                 LEN("\1", "\0", "\0") "y");
    expect_bytes(fd, LEN("\1", "\0", "\0") "y", 9, "expected none: set");
    SEND(fd, "\2" LEN("\1", "\0", "\0") "c" LEN("\1", "\0", "\0") "x" LEN(
                 "\1", "\0", "\0") "z");
    expect_bytes(fd, LEN("\1", "\0", "\0") "y", 9, "expected another: kept");
    SEND(fd, "\x09" LEN("\1", "\0", "\0") "c" LEN("\1", "\0", "\0") "+");
    SEND(fd, "\3" LEN("\1", "\0", "\0") "c");
    expect_bytes(fd, LEN("\2", "\0", "\0") "y+", 10, "APPEND");
    SEND(fd, "\7");
    expect_bytes(fd, LEN("\4", "\0", "\0"), 8, "four keys");
    SEND(fd, "\x08" LEN("\1", "\0", "\0") "c");
    expect_bytes(fd, LEN("\1", "\0", "\0"), 8, "DELETE");
    SEND(fd, "\x08" LEN("\1", "\0", "\0") "c");
    expect_bytes(fd, LEN("\0", "\0", "\0"), 8, "DELETE again");
    close(fd);
    close(other);
    gpt_store_server_close(v, 1);
}

/* A client that sends many requests and reads no answers must not fill
 * memory. */
static void test_does_not_read(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *s = join(v, 2, 0);
    struct gpt_err err = {0};
    static char big[1 << 20];
    int fd = raw_connect(gpt_store_server_port(v));
    struct timeval now = {0, 1000};
    int64_t n;

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &now, sizeof(now));
    if (gpt_store_set(s, "big", big, sizeof(big), &err) != GPT_OK)
        exit(1);
    SEND(fd, VALID);
    for (int i = 0; i < 2000; i++)
        if (send(fd, "\3" LEN("\x10", "\0", "\0") "gpt/test.0.0/big", 25,
                 MSG_NOSIGNAL) < 0)
            break;
    ok(gpt_store_add(s, "n", 1, &n, &err) == GPT_OK, "others are served");
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0;
    if (f && fscanf(f, "%*d %ld", &pages) == 1)
        ok(pages * 4096.0 < 300e6, "2 GB of replies are not kept: %.0f MB",
           (double)pages * 4096.0 / 1e6);
    if (f)
        fclose(f);
    close(fd);
    gpt_store_close(s);
    gpt_store_server_close(v, 1);
}

int main(void)
{
    test_world_of_one();
    test_connected();
    test_ranks();
    test_barrier_late();
    test_failures();
    test_places();
    test_hostile();
    test_lengths();
    test_raw();
    test_does_not_read();
    return tap_done();
}
