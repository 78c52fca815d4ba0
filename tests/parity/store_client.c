/* Executes commands from standard input, one on each line, with this project's
 * client of the store, and prints the results. For store_parity.py.
 *
 *     store_client HOST PORT WORLD RANK
 *     store_client serve     a server, until standard input ends
 *     store_client meet      ranks find each other as the launcher says
 */
#include "parallel/store.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct gpt_err *err)
{
    printf("error %s\n", err->text);
    return err->status;
}

/* Serves until standard input ends. */
static int serve(void)
{
    struct gpt_store_server *v;
    struct gpt_err err = {0};

    if (gpt_store_server_open(&v, "127.0.0.1", 0, &err) != GPT_OK)
        return fail(&err);
    printf("%lld\n", (long long)gpt_store_server_port(v));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    gpt_store_server_close(v, 0);
    return 0;
}

/* Every rank sets its own key, and checks the keys of all others. */
static int meet(void)
{
    struct gpt_launch_env l;
    struct gpt_store *s;
    struct gpt_err err = {0};
    int64_t sum;

    if (gpt_launch_env_detect(&l, &err) != GPT_OK ||
        gpt_store_open(&s, &l, 20, &err) != GPT_OK)
        return fail(&err);
    if (gpt_store_add(s, "sum", l.rank + 1, &sum, &err) != GPT_OK ||
        gpt_store_barrier(s, "met", 20, &err) != GPT_OK ||
        gpt_store_add(s, "sum", 0, &sum, &err) != GPT_OK) {
        gpt_store_close(s);
        return fail(&err);
    }
    printf("%s rank %lld of %lld, sum %lld\n", l.launcher, (long long)l.rank,
           (long long)l.world_size, (long long)sum);
    fflush(stdout);
    gpt_store_close(s);
    return 0;
}

static int execute(struct gpt_store *s, const char *word, const char *key,
                   const char *text)
{
    struct gpt_err err = {0};
    void *value;
    size_t len;
    int64_t n;
    bool there;
    int status = GPT_OK;

    if (strcmp(word, "set") == 0) {
        status = gpt_store_set(s, key, text, strlen(text), &err);
        if (status == GPT_OK)
            printf("ok\n");
    } else if (strcmp(word, "get") == 0) {
        status = gpt_store_get(s, key, 10, &value, &len, &err);
        if (status == GPT_OK) {
            printf("%.*s\n", (int)len, (char *)value);
            gpt_free(value);
        }
    } else if (strcmp(word, "add") == 0) {
        status = gpt_store_add(s, key, atoll(text), &n, &err);
        if (status == GPT_OK)
            printf("%lld\n", (long long)n);
    } else if (strcmp(word, "check") == 0) {
        status = gpt_store_check(s, key, &there, &err);
        if (status == GPT_OK)
            printf("%d\n", there);
    } else if (strcmp(word, "barrier") == 0) {
        status = gpt_store_barrier(s, key, 10, &err);
        if (status == GPT_OK)
            printf("ok\n");
    } else if (strcmp(word, "fail") == 0) {
        struct gpt_err failure;

        gpt_fail(&failure, GPT_EFAIL, "%s", text);
        gpt_fail_on_rank(&failure, atoll(key));
        status = gpt_store_post_failure(s, &failure, &err);
        if (status == GPT_OK)
            printf("ok\n");
    } else if (strcmp(word, "failed") == 0) {
        struct gpt_err failure = {.rank = -1, .text = "nobody"};

        (void)gpt_store_failed(s, &failure);
        printf("%lld %s\n", (long long)failure.rank, failure.text);
    }
    return status == GPT_OK ? 0 : fail(&err);
}

int main(int argc, char **argv)
{
    char line[512], word[32], key[128], text[256];
    struct gpt_store *s;
    struct gpt_err err = {0};

    if (argc == 2)
        return strcmp(argv[1], "meet") == 0 ? meet() : serve();
    if (argc != 5)
        return 2;
    struct gpt_launch_env l = {.world_size = atoll(argv[3]),
                           .rank = atoll(argv[4]),
                           .port = atoll(argv[2]),
                           .agent_store = true,
                           .run_id = "parity"};
    snprintf(l.host, sizeof(l.host), "%s", argv[1]);
    if (gpt_store_open(&s, &l, 10, &err) != GPT_OK)
        return fail(&err);
    while (fgets(line, sizeof(line), stdin)) {
        *text = '\0';
        if (sscanf(line, "%31s %127s %255[^\n]", word, key, text) >= 2)
            execute(s, word, key, text);
        fflush(stdout);
    }
    gpt_store_close(s);
    return 0;
}
