/* gpt-dataset verify: everything that is wrong with data sets, by the rules of
 * gpt-dataset(5). First the index is checked (data/idx.c); then, where it says
 * where tokens are, the tokens are. Start at run_verify() for the command, at
 * gpt_verify() for the check.
 *
 * A reader of the set would stop at the first damage; this one continues as
 * long as the next check has a meaning: without a header there is no index,
 * without a type there are no tokens, and without lengths no document has a
 * known end. */
#include "cmd/dataset/verify.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cmd/dataset/command.h"
#include "cmd/dataset/listing.h"
#include "cmd/dataset/untrusted.h"
#include "data/idx.h"
#include "data/provenance.h"

#include <inttypes.h>
#include <string.h>

/* ---- the check ---- */

struct token_check {
    const struct gpt_untrusted *set;
    const struct gpt_idx *idx;
    const struct gpt_verify_options *o;
    struct gpt_damages *all;
    int64_t limit;    /* ids are below it */
    int64_t document; /* the next one whose end is to be seen */
};

/* Found tokens are named by their byte in the .bin, which any tool can go to,
 * and by their place in the sequence. */
static void report_token(const struct token_check *p, int64_t sequence,
                         int64_t begin, int64_t i)
{
    int64_t id = gpt_token_at(p->set->bytes, p->idx->dtype, i);

    gpt_damage_found(p->all, NULL, GPT_DAMAGE_TOKEN, NULL,
                     "%s:%" PRId64 ": token %" PRId64 " of sequence %" PRId64
                     " is %" PRId64 ", must be >= 0 and < %" PRId64,
                     gpt_in_path(p->set->bin_file),
                     i * (int64_t)gpt_dtype_bytes(p->idx->dtype), i - begin,
                     sequence, id, p->limit);
}

static void check_range(const struct token_check *p, int64_t sequence,
                        int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        int64_t id = gpt_token_at(p->set->bytes, p->idx->dtype, i);

        if (id < 0 || id >= p->limit)
            report_token(p, sequence, begin, i);
    }
}

/* Checks the last tokens of the documents that end with sequence i, whose own
 * end is token `end`. Several documents end with one sequence where empty ones
 * follow it. */
static void check_eod(struct token_check *p, int64_t i, int64_t begin,
                      int64_t end)
{
    const struct gpt_idx *idx = p->idx;

    while (p->document < idx->n_documents &&
           gpt_idx_i64(idx->documents, p->document + 1) <= i + 1) {
        int64_t d = p->document++;

        if (gpt_idx_i64(idx->documents, d) ==
            gpt_idx_i64(idx->documents, d + 1))
            continue; /* empty */
        int64_t id = end > begin
                         ? gpt_token_at(p->set->bytes, idx->dtype, end - 1)
                         : -1;
        if (id == p->o->eod)
            continue;
        gpt_damage_found(
            p->all, NULL, GPT_DAMAGE_EOD, NULL,
            "%s:%" PRId64 ": document %" PRId64 " (sequence %" PRId64
            ") ends with %s%" PRId64 ", not with %" PRId64,
            gpt_in_path(p->set->bin_file),
            end * (int64_t)gpt_dtype_bytes(idx->dtype), d, i,
            end > begin ? "token " : "no token, ", end > begin ? id : 0,
            p->o->eod);
    }
}

/* True when it is known where documents end: their array is in order, and the
 * lengths are right. Otherwise every document after the damage would be
 * reported for it. */
static bool ends_known(const struct gpt_damages *all)
{
    return all->count[GPT_DAMAGE_DOCUMENT] == 0 &&
           all->count[GPT_DAMAGE_LENGTH] == 0 &&
           all->count[GPT_DAMAGE_EOD_LENGTH] == 0;
}

/* True when tokens of this type can be what is no id. Most sets are uint16 with
 * a vocabulary of less than 65536, and need not be read for this at all. */
static bool can_exceed(enum gpt_dtype dtype, int64_t limit)
{
    return !(dtype == GPT_U16 && limit > UINT16_MAX) &&
           !(dtype == GPT_U8 && limit > UINT8_MAX);
}

static int check_tokens(struct token_check *p, struct gpt_err *err)
{
    const struct gpt_idx *idx = p->idx;
    /* Where the .bin is too short the tokens that are there are still
     * checked. */
    int64_t there = p->set->bin_bytes / (int64_t)gpt_dtype_bytes(idx->dtype);
    bool range = can_exceed(idx->dtype, p->limit);
    bool eod = p->o->eod >= 0 && ends_known(p->all);
    int64_t begin = 0;

    /* Without either check the .bin is not read at all. */
    if (!range && !eod)
        return GPT_OK;
    for (int64_t i = 0; i < idx->n_sequences && begin <= there; i++) {
        int64_t length = gpt_max_i64(0, gpt_idx_i32(idx->lengths, i));
        int64_t end = begin + length;

        if (range)
            check_range(p, i, begin, gpt_min_i64(end, there));
        if (eod && end <= there)
            check_eod(p, i, begin, end);
        begin = end;
        GPT_TRY(gpt_signals_check(err));
    }
    return GPT_OK;
}

/* The same rule as that of gpt-train, which refuses such a pair: ids of another
 * tokenizer may all be in range. A set without provenance passes. A provenance
 * that cannot be read, for a lack of memory too, says nothing of the set. */
static int check_tokenizer(const char *prefix,
                           const struct gpt_tokenizer_identity *wanted,
                           struct gpt_damages *all, struct gpt_err *err)
{
    enum { TEXT = 300 };
    struct gpt_tokenizer_identity made;
    struct gpt_err unreadable;
    char its[TEXT], mine[TEXT];
    cJSON *root;
    const int status = gpt_provenance_read(&root, prefix, &unreadable);

    if (status != GPT_OK && status != GPT_EDATA) {
        *err = unreadable;
        return status;
    }
    if (status == GPT_EDATA)
        gpt_damage_found(all, NULL, GPT_DAMAGE_TOKENIZER, NULL, "%s",
                         unreadable.text);
    else if (gpt_tokenizer_identity_read(
                 &made, cJSON_GetObjectItemCaseSensitive(root, "tokenizer")) &&
             !gpt_tokenizer_identity_equal(&made, wanted)) {
        gpt_tokenizer_identity_text(its, sizeof(its), &made);
        gpt_tokenizer_identity_text(mine, sizeof(mine), wanted);
        gpt_damage_found(all, NULL, GPT_DAMAGE_TOKENIZER,
                         "name its tokenizer, or tokenize the text anew",
                         "%s was made with %s, not with %s", prefix, its, mine);
    }
    cJSON_Delete(root);
    return GPT_OK;
}

int gpt_verify(const char *prefix, const struct gpt_verify_options *options,
               struct gpt_damages *all, struct gpt_refusal *refusal,
               struct gpt_err *err)
{
    struct gpt_untrusted set;
    struct gpt_idx idx;
    struct token_check p = {&set, &idx, options, all,
                     options->vocab_size > 0 ? options->vocab_size
                                             : INT64_C(1) << 31,
                     0};
    int status;

    refusal->why = NULL;
    GPT_TRY_GOTO(status, gpt_untrusted_open(&set, prefix, err), out);
    const bool readable =
        gpt_idx_check(&idx, set.image, set.image_bytes, set.bin_bytes,
                      gpt_in_path(set.idx_file), all) == GPT_OK;
    (void)gpt_repair_refused(refusal, &set, &idx, readable, all);
    /* Tokens are looked at only when the index says where they are. */
    if (readable)
        status = check_tokens(&p, err);
    if (status == GPT_OK)
        status = gpt_in_whole(set.bin_file, err);
    if (status == GPT_OK && options->tokenizer)
        status = check_tokenizer(prefix, options->tokenizer, all, err);
out:
    gpt_untrusted_close(&set);
    return status;
}

/* ---- what is printed ---- */

struct finding {
    enum gpt_damage kind;
    struct gpt_err err;
};

/* The findings of a set. */
struct findings {
    struct gpt_damages damages; /* .user is this struct */
    struct finding *items;
    size_t n, cap;
    bool out_of_memory;
};

/* Keeps a finding: gpt_damages.found. It cannot fail, so that a lack of memory
 * is kept, too, and reported at the end. */
static void keep_finding(void *user, enum gpt_damage kind,
                         const struct gpt_err *err)
{
    struct findings *f = user;
    struct gpt_err ignored;

    if (gpt_grow(&f->items, &f->cap, f->n + 1, sizeof(*f->items), "findings",
                 &ignored) != GPT_OK) {
        f->out_of_memory = true;
        return;
    }
    f->items[f->n++] = (struct finding){kind, *err};
}

static void open_findings(struct findings *f, int64_t most)
{
    *f = (struct findings){
        .damages = {.most = most, .found = keep_finding, .user = f}};
}

static void close_findings(struct findings *f)
{
    gpt_free(f->items);
    f->items = NULL;
    f->n = f->cap = 0;
}

/* A set that gpt-dataset repair refuses: the findings that recommend it do not,
 * and the one in question says what to do instead. */
static void withdraw_repair(struct findings *f, const struct gpt_refusal *r)
{
    for (size_t i = 0; i < f->n; i++) {
        struct finding *found = &f->items[i];

        if (strstr(found->err.hint, "gpt-dataset repair"))
            found->err.hint[0] = '\0';
        if (found->kind == r->kind)
            (void)gpt_repair_hint(&found->err, r);
    }
}

/* The counts are of all findings, the list has the first of each kind. */
static cJSON *findings_object(const char *prefix, const struct findings *f)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "prefix", prefix);
    cJSON_AddBoolToObject(o, "good", gpt_damages_total(&f->damages) == 0);
    cJSON *counts = cJSON_AddObjectToObject(o, "counts");
    for (int k = 0; k < GPT_N_DAMAGES; k++)
        if (f->damages.count[k] > 0)
            gpt_listing_put_int(counts, gpt_damage_word(k),
                                f->damages.count[k]);
    cJSON *list = cJSON_AddArrayToObject(o, "findings");
    for (size_t i = 0; i < f->n; i++) {
        cJSON *item = cJSON_CreateObject();
        const struct finding *found = &f->items[i];

        cJSON_AddStringToObject(item, "kind", gpt_damage_word(found->kind));
        cJSON_AddStringToObject(item, "text", found->err.text);
        if (found->err.hint[0])
            cJSON_AddStringToObject(item, "hint", found->err.hint);
        gpt_json_add(list, NULL, item);
    }
    return o;
}

static int add_words(struct gpt_listing *l, const char *word, const char *text)
{
    GPT_TRY(gpt_buf_printf(&l->text, "%-17s ", word));
    GPT_TRY(gpt_buf_add_shown(&l->text, text, ""));
    return gpt_buf_add(&l->text, "\n", 1);
}

/* The findings of a kind, one a line, and their hint once. */
static int add_kind(struct gpt_listing *l, const struct findings *f,
                    enum gpt_damage kind)
{
    const char *hint = "";
    int64_t shown = 0;

    for (size_t i = 0; i < f->n; i++) {
        /* The list is in the order of the file; here findings of a kind are
         * together. */
        if (f->items[i].kind != kind)
            continue;
        GPT_TRY(add_words(l, gpt_damage_word(kind), f->items[i].err.text));
        hint = f->items[i].err.hint;
        shown++;
    }
    if (f->damages.count[kind] > shown)
        GPT_TRY(gpt_buf_printf(&l->text, "%-17s and %" PRId64 " more\n",
                               gpt_damage_word(kind),
                               f->damages.count[kind] - shown));
    return hint[0] ? add_words(l, "", hint) : GPT_OK;
}

static int add_table(struct gpt_listing *l, const char *prefix,
                     const struct findings *f)
{
    int64_t total = gpt_damages_total(&f->damages);

    for (int k = 0; k < GPT_N_DAMAGES; k++)
        GPT_TRY(add_kind(l, f, k));
    GPT_TRY(gpt_buf_add_shown(&l->text, prefix, ""));
    return total == 0
               ? gpt_buf_printf(&l->text, ": good\n")
               : gpt_buf_printf(&l->text, ": %" PRId64 " finding%s\n", total,
                                gpt_plural(total));
}

static int add_findings(struct gpt_listing *l, const char *prefix,
                        const struct findings *f, struct gpt_err *err)
{
    if (f->out_of_memory)
        return gpt_listing_check(GPT_EFAIL, err);
    if (l->json)
        return gpt_listing_add(l, findings_object(prefix, f), err);
    return gpt_listing_check(add_table(l, prefix, f), err);
}

/* ---- the command ---- */

/* Adds to *n how much is wrong with the set. */
static int verify_set(struct gpt_listing *l, const char *prefix,
                      const struct gpt_verify_options *vo, int64_t most,
                      int64_t *n, struct gpt_err *err)
{
    struct gpt_refusal refusal;
    struct findings f;
    int status;

    open_findings(&f, most);
    GPT_TRY_GOTO(status, gpt_verify(prefix, vo, &f.damages, &refusal, err),
                 out);
    if (refusal.why)
        withdraw_repair(&f, &refusal);
    status = add_findings(l, prefix, &f, err);
    *n += gpt_damages_total(&f.damages);
out:
    close_findings(&f);
    return status;
}

/* The size that was given counts, else that of the vocabulary, else none. The
 * identity of the tokenizer goes to *id, which *vo borrows. */
static int find_vocabulary(struct gpt_verify_options *vo,
                           struct gpt_tokenizer_identity *id,
                           const struct gpt_dataset_options *o,
                           struct gpt_err *err)
{
    struct gpt_tokenizer_options named;
    struct gpt_tokenizer *tok = NULL;
    int status = GPT_OK;

    GPT_TRY(gpt_dataset_tokenizer(&named, o, true, err));
    if (named.type)
        GPT_TRY(gpt_tokenizer_open_given(&tok, &named, err));
    vo->vocab_size = o->vocab_size;
    if (tok) {
        /* NullTokenizer has one more id than its size, which ends documents */
        if (vo->vocab_size == 0 || strcmp(named.type, "NullTokenizer") == 0)
            vo->vocab_size = gpt_tokenizer_vocab_size(tok);
        status = gpt_tokenizer_identify(id, &named, tok, err);
        vo->tokenizer = id;
    }
    gpt_tokenizer_close(tok);
    return status;
}

/* All sets are checked before the program fails for any of them: a script sees
 * every finding in one run. */
static int run_verify(const struct gpt_dataset_options *o,
                      const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_listing l = {.json = o->json};
    struct gpt_verify_options vo = {.eod = o->eod};
    struct gpt_tokenizer_identity id;
    int64_t findings = 0;
    int status = GPT_OK;

    GPT_TRY(find_vocabulary(&vo, &id, o, err));
    for (int i = 0; i < n; i++)
        GPT_TRY_GOTO(status, verify_set(&l, sets[i], &vo, o->max_findings,
                                        &findings, err), out);
out:
    status = gpt_listing_print(&l, o->out, status, err);
    if (status == GPT_OK && findings > 0)
        return gpt_fail(err, GPT_EDATA, "%lld finding%s", (long long)findings,
                        gpt_plural(findings));
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_JSON,
    GPT_DATASET_VOCABULARY("ids must be below N; 0: below what the vocabulary "
                           "has"),
    GPT_DATASET_GROUP("What to look for"),
    GPT_DATASET_EOD("each document must end with this token; -1: any may"),
    {.kind = GPT_OPT_INT, .name = "max-findings", .arg = "N",
     GPT_DATASET_AT(max_findings), .def = "5", .min = 1, .max = 1e6,
     .help = "how many of a kind are listed; all are counted"},
};

const struct gpt_dataset_command gpt_dataset_verify = {
    .name = "verify",
    .run = run_verify,
    .min_sets = 1,
    .max_sets = INT32_MAX,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "verify PREFIX... [--vocab-size N] [--eod ID] [--json]",
    .example = "gpt-dataset verify my-gpt2_text_document --vocab-size 50257 "
               "--eod 50256",
};
