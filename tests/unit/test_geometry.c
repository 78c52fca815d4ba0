/* Widths, rows, messages and operations that follow from a configuration, and
 * which memory is the device's. */
#include "model/geometry.h"
#include "model/memory_kinds.h"
#include "model/rotary.h"
#include "model/stage.h"

#include "tests/lib/tap.h"

#include <string.h>

/* 8 heads of 4 elements, 2 query groups: hidden size and attention differ. */
static struct gpt_config grouped(void)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_err err;

    c.num_layers = 3;
    c.hidden_size = 40;
    c.num_attention_heads = 8;
    c.num_query_groups = 2;
    c.head_size = 4;
    c.ffn_hidden_size = 24;
    c.vocab_size = 50;
    if (gpt_config_complete(&c, 4, 2, &err) != GPT_OK)
        printf("# %s\n", err.text);
    return c;
}

static void test_widths(void)
{
    const struct gpt_config c = grouped();
    const struct gpt_widths all = gpt_widths_of(&c, 1);
    const struct gpt_widths half = gpt_widths_of(&c, 2);

    is_int(all.attention, 32, "attention's output: heads of 4 elements");
    is_int(all.keys, 8, "keys of 2 groups");
    is_int(all.qkv, 32 + 2 * 8, "queries, keys and values");
    is_int(all.ffn_in, 24, "one input of GELU an output");
    is_int(all.vocab, 56, "the padded vocabulary");
    is_int(half.heads * 2, all.heads, "half the heads on each of two ranks");
    is_int(half.qkv * 2, all.qkv, "and half of what comes of them");
    is_int(half.ffn * 2, all.ffn, "half the feed-forward");
    is_int(half.vocab * 2, all.vocab, "half the vocabulary");
    is_int(half.hidden, all.hidden, "the residual stream is not cut");
}

static void test_division(void)
{
    static const struct {
        int64_t heads, groups, ffn, padded, tp;
        const char *field; /* NULL: divides */
    } cases[] = {
        {8, 2, 24, 56, 1, NULL},
        {8, 2, 24, 56, 2, NULL},
        {6, 2, 24, 56, 4, "num_attention_heads"},
        {8, 2, 24, 56, 4, "num_query_groups"},
        {8, 4, 22, 56, 4, "ffn_hidden_size"},
        {8, 4, 24, 54, 4, "padded_vocab_size"},
        {8, 4, 24, 56, 0, "num_attention_heads"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_config c = grouped();
        struct gpt_undivided first = {0};
        struct gpt_err err;

        c.num_attention_heads = cases[i].heads;
        c.num_query_groups = cases[i].groups;
        c.ffn_hidden_size = cases[i].ffn;
        c.padded_vocab_size = cases[i].padded;
        is_int(gpt_widths_check(&c, cases[i].tp, &err),
               cases[i].field ? GPT_EUSAGE : GPT_OK, "case %zu", i);
        if (gpt_widths_divide(&c, cases[i].tp, &first) || !cases[i].field)
            continue;
        is_str(first.field, cases[i].field, "names what does not divide");
        ok(strstr(err.text, cases[i].field) != NULL, "so does the message");
    }
}

static void test_rows(void)
{
    const struct gpt_config c = grouped();
    const struct gpt_rows whole = gpt_rows_of(3, 8, 4, false);
    const struct gpt_rows cut = gpt_rows_of(3, 8, 4, true);
    struct gpt_err err;

    is_int(whole.n, 24, "rows of a microbatch");
    is_int(whole.kept, 24, "kept by every rank");
    is_int(cut.n, 24, "sequence parallel ranks compute all");
    is_int(cut.kept, 6, "and keep a fourth");
    is_int(gpt_message_bytes(&c, whole, GPT_F32), 24 * 40 * 4, "a message");
    is_int(gpt_message_bytes(&c, cut, GPT_BF16), 6 * 40 * 2, "a part of one");
    is_int(gpt_rows_check(3, 8, 4, &err), GPT_OK, "24 rows divide by 4");
    is_int(gpt_rows_check(3, 7, 4, &err), GPT_EUSAGE, "21 do not: %s",
           err.text);
}

/* num_floating_point_operations of Megatron-LM for GPT-2 small, one sample of
 * 1024 tokens, vocabulary 50304: counted with its formula for a model whose
 * heads are as wide as the hidden size,
 * 72 L C^2 (1 + T / (6 C) + V / (12 L C)) a token, with causal attention half
 * of T. */
static void test_operations(void)
{
    struct gpt_config c = gpt_config_default();
    const double L = 12, C = 768, T = 1024, V = 50304;
    struct gpt_err err;

    is_int(gpt_config_complete(&c, 128, 1, &err), GPT_OK, "GPT-2 small");
    is_near(gpt_flops_per_token(&c, 1024),
            72 * L * C * C * (1 + T / 2 / (6 * C) + V / (12 * L * C)), 1e-12,
            0, "operations a token");
    /* two of twelve layers have a window of 255 and the token itself: scores
     * and values of 256 keys, less those that the first tokens do not have */
    const double full = gpt_flops_per_token(&c, 1024);
    c.window_size = 255;
    c.window_full_layers = 8;
    c.window_attn_skip_freq = 2;
    is_near(full - gpt_flops_per_token(&c, 1024),
            2 * 12 * C * (T / 2 - (256 - 256 * 256 / (2 * T))), 1e-9, 0,
            "operations that windows save");
}

static void test_memory_kinds(void)
{
    const struct gpt_backend host = {.host_memory = true};
    const struct gpt_backend device = {.host_memory = false};
    struct gpt_memory m;
    double sum = 0, there = 0;

    for (int i = 0; i < GPT_N_MEMORY_KINDS; i++) {
        m = (struct gpt_memory){.bytes = {[0] = 0}};
        m.bytes[i] = 1000 + i;
        ok(gpt_memory_kind_name((enum gpt_memory_kind)i)[0] != '\0',
           "a kind has a name");
        is_int((int64_t)gpt_memory_total(&m), 1000 + i, "it counts once");
        sum += gpt_memory_device(&m, &host);
        there += gpt_memory_device(&m, &device);
    }
    is_int((int64_t)(sum - there),
           4000 + GPT_MEM_SAMPLES + GPT_MEM_BATCHES + GPT_MEM_EXCHANGE +
               GPT_MEM_SAVING,
           "a device holds neither indices, batches, nor what is on its way "
           "through the host, nor what is saved");
}

/* Whole blocks of 64 rows of 56 bf16 logits, as many as the device likes. */
static void test_logits(void)
{
    const struct gpt_config c = grouped();
    const struct gpt_backend little = {.logits_bytes = 1};
    const struct gpt_backend some = {.logits_bytes = 3 * 64 * 112 + 5};
    const struct gpt_backend much = {.logits_bytes = 1 << 30};
    struct gpt_layout layout = {.size = {0}};

    layout.size[GPT_TP] = 1;
    is_int(gpt_stage_logits_rows(&little, &c, &layout, GPT_BF16, 1000), 64,
           "a block of logits at least");
    is_int(gpt_stage_logits_rows(&some, &c, &layout, GPT_BF16, 1000), 3 * 64,
           "as many blocks as the device's share of logits has room for");
    is_int(gpt_stage_logits_rows(&much, &c, &layout, GPT_BF16, 1000), 1000,
           "never more than there are rows");
}

/* YaRN's ramp of pairs: the numbers of transformers for 64 elements, base 10000
 * and 4096 positions; its ends are kept apart where they meet. */
static void test_yarn(void)
{
    struct gpt_config c = grouped();
    struct gpt_rope op = {.rotary = 0};

    c.head_size = 64;
    c.rotary_percent = 1;
    c.rotary_scaling = GPT_SCALING_YARN;
    c.rotary_base = 10000;
    c.rotary_factor = 4;
    c.rotary_fast = 32;
    c.rotary_slow = 1;
    c.rotary_positions = 4096;
    gpt_rotary_fill(&op, &c, 0, false);
    is_int(op.rotary, 64, "all elements turn");
    is_near(op.scaling.to, 10, 0, 0, "the last pair that stays");
    is_near(op.scaling.from, 23, 0, 0, "the first that is interpolated");
    is_near(op.scaling.attention, 1.1386294, 1e-6, 0, "0.1 ln 4 + 1");
    c.rotary_attention = 1.5;
    gpt_rotary_fill(&op, &c, 0, false);
    is_near(op.scaling.attention, 1.5, 0, 0, "the model's own");
    c.rotary_positions = 6;
    gpt_rotary_fill(&op, &c, 0, false);
    ok(op.scaling.to == 0 && op.scaling.from > 0 && op.scaling.from < 0.01,
       "a ramp that is a step");
    c.rotary_scaling = GPT_SCALING_LONGROPE;
    gpt_rotary_fill(&op, &c, 0, false);
    is_near(op.scaling.attention, 1.5, 0, 0, "its own with LongRoPE, too");
    c.rotary_attention = 0;
    gpt_rotary_fill(&op, &c, 0, false);
    is_near(op.scaling.attention, gpt_config_sharpness(&c), 0, 0,
            "or what the lengths say");
}

/* Which of 60 layers have experts, by a letter, and how that is said. */
static void test_expert_layers(void)
{
    static const struct {
        const char *letters; /* those after the last repeat the last two */
        int64_t dense, freq;
    } cases[] = {
        {"xx", 0, 0},       {".x", 0, 2},    {"..xx", 2, 0},
        {"...x.x", 3, 2},   {"..x.x", 0, -2}, {"x.", 0, -1},
        {"x....xx", 0, -2}, {"..", 60, 0},
    };

    for (size_t k = 0; k < GPT_COUNT(cases); k++) {
        const size_t n = strlen(cases[k].letters);
        struct gpt_config c = grouped(), list;
        bool has[60], same = true;

        c.num_layers = 60;
        c.num_experts = 4;
        for (size_t l = 0; l < 60; l++)
            has[l] = cases[k].letters[l < n ? l : n - 1 - (l - n + 1) % 2] ==
                     'x';
        if (!ok(gpt_config_choose_experts(&c, has) == (cases[k].freq != -2),
                "%s: is said, or not", cases[k].letters) ||
            cases[k].freq == -2)
            continue;
        ok(c.moe_dense_layers == cases[k].dense &&
               (cases[k].freq < 0 || c.moe_layer_freq == cases[k].freq),
           "%s: %lld without, every %lld", cases[k].letters,
           (long long)c.moe_dense_layers, (long long)c.moe_layer_freq);
        for (int64_t l = 0; l < 60; l++)
            same = same && gpt_config_has_experts(&c, l) == has[l];
        ok(same, "%s: the same layers", cases[k].letters);
        list = c;
        gpt_config_settle_experts(&list);
        ok(list.moe_layer_freq == c.moe_layer_freq &&
               list.moe_dense_layers == c.moe_dense_layers,
           "%s: said once and for all", cases[k].letters);
    }
}

/* Numbers that mean the same layers become one; a width that no layer has is
 * that of experts, which ranks of tensor parallelism do not cut. */
static void test_expert_widths(void)
{
    struct gpt_config c = grouped();
    struct gpt_undivided first;
    struct gpt_err err = {0};

    c.num_experts = 4;
    c.moe_router_topk = 1;
    c.moe_ffn_hidden_size = 7;
    c.no_linear_bias = true;
    c.moe_dense_layers = 1;
    c.moe_layer_freq = 2;
    ok(gpt_config_complete(&c, 4, 2, &err) == GPT_OK &&
           c.moe_dense_layers == 0 && c.moe_layer_freq == 2 &&
           c.ffn_hidden_size == 24,
       "the first of three layers has none of every second: %s", err.text);
    c.moe_layer_freq = 0;
    ok(gpt_config_complete(&c, 4, 2, &err) == GPT_OK &&
           c.ffn_hidden_size == 7 && !gpt_config_has_dense(&c) &&
           gpt_widths_divide(&c, 2, &first),
       "experts in all layers: %s", err.text);
    c.moe_dense_layers = 1;
    ok(gpt_config_complete(&c, 4, 2, &err) == GPT_OK &&
           gpt_config_has_dense(&c) && !gpt_widths_divide(&c, 2, &first),
       "and in all but one, which ranks cut");
}

int main(void)
{
    test_expert_layers();
    test_expert_widths();
    test_yarn();
    test_logits();
    test_widths();
    test_division();
    test_rows();
    test_operations();
    test_memory_kinds();
    return tap_done();
}
