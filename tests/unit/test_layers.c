/* Which layers are of another kind: numbers, and lists in Python's words. */
#include "tests/lib/tap.h"

#include "base/memory.h"
#include "model/config.h"
#include "model/layer_list.h"

/* A text for n layers becomes these entries, or nothing. */
static void test_texts(void)
{
    static const struct {
        const char *text, *entries; /* NULL: refused */
        bool odd;
    } rows[] = {
        {"3", "110110", false},
        {"3", "001001", true},
        {"0", "111111", false},
        {"7", "111111", false},
        {"[1,1,0,1,1,0]", "110110", false},
        {" [ 1, 0 ,1,0, 1,0 ] ", "101010", false},
        {"([1]*2+[0])*2", "110110", false},
        {"2*([1]*2+[0])", "110110", false},
        {"[1]+[0]*4+[1]", "100001", false},
        {"([1]+([0]+[1])*2)+[1]", "101011", true},
        {"[0]*0+[1]*6", "111111", false},
        {"[0]*6", "000000", false},
        {"[1,0]", NULL, false},
        {"[1,0,2,0,1,0]", NULL, false},
        {"[1]*6+", NULL, false},
        {"([1]*6", NULL, false},
        {"[1]*6)", NULL, false},
        {"[1]*999999999999999999", NULL, false},
        {"[]*6", NULL, false},
        {"6*6", NULL, false},
        {"-1", NULL, false},
        {"65537", NULL, false},
        {"((((((((((((((((((((1", NULL, false},
        {"", NULL, false},
        {"[1,1,0,1,1,0] # all", NULL, false},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_err err = {0};
        char entries[7] = "";
        int64_t layers;
        int status =
            gpt_layers_parse(&layers, rows[i].text, 6, rows[i].odd, &err);

        for (int64_t l = 0; status == GPT_OK && l < 6; l++)
            entries[l] = gpt_layers_entry(layers, l, rows[i].odd) ? '1' : '0';
        if (rows[i].entries)
            is_str(entries, rows[i].entries, "'%s'", rows[i].text);
        else
            is_int(status, GPT_EUSAGE, "refused: %s", err.text);
    }
}

/* One choice has one number, and comes back from its text. */
static void test_numbers(void)
{
    struct gpt_buf text = {0};
    struct gpt_err err = {0};
    bool entry[100];
    int64_t a, b;

    is_int(gpt_layers_parse(&a, "[1,1,0]*2", 6, false, &err), GPT_OK, "a list");
    is_int(a, 3, "that is every third layer is this number");
    is_int(gpt_layers_parse(&a, "[0,1,1]*2", 6, false, &err), GPT_OK,
           "another list");
    is_int(gpt_layers_print(&text, a, 6, false), GPT_OK, "is printed");
    is_str(text.data, "[0,1,1,0,1,1]", "its text");
    is_int(gpt_layers_parse(&b, text.data, 6, false, &err), GPT_OK, "is read");
    is_int(b, a, "as the same");
    gpt_buf_free(&text);
    for (int i = 0; i < 100; i++)
        entry[i] = i % 48 < 3;
    ok(gpt_layers_pack(entry, 100, false) >= GPT_LAYERS_LIST,
       "what repeats after 48 layers is a list");
    entry[99] = true;
    is_int(gpt_layers_pack(entry, 100, false), -1, "what does not is none");
}

/* A configuration keeps a list in its JSON, and refuses another one. */
static void test_json(void)
{
    struct gpt_config c = gpt_config_default(), back = {0};
    struct gpt_err err = {0};

    c.position_embedding = GPT_POSITION_ROPE;
    c.rotary_base = 10000;
    c.rotary_percent = 1;
    c.window_size = 100;
    is_int(gpt_layers_parse(&c.window_attn_skip_freq, "[1,0,0]*4", 12, false,
                            &err), GPT_OK, "%s", err.text);
    c.no_rope_freq = 4;
    is_int(gpt_config_complete(&c, 128, 1, &err), GPT_OK, "a model: %s",
           err.text);
    cJSON *json = gpt_config_to_json(&c);
    is_str(cJSON_GetObjectItem(json, "window_attn_skip_freq")->valuestring,
           "[1,0,0,1,0,0,1,0,0,1,0,0]", "a list is a text in JSON");
    is_int(cJSON_GetObjectItem(json, "no_rope_freq")->valueint, 4,
           "a number is one");
    is_int(gpt_config_from_json(&back, json, "json", &err), GPT_OK, "is read");
    ok(!gpt_config_difference(&c, &back), "as the same model");
    cJSON_ReplaceItemInObject(json, "window_attn_skip_freq",
                              cJSON_CreateNumber(70000));
    is_int(gpt_config_from_json(&back, json, "json", &err), GPT_EDATA,
           "a number that would be taken for a list: %s", err.text);
    cJSON_Delete(json);
    c.no_rope_freq = 13;
    is_int(gpt_config_complete(&c, 128, 1, &err), GPT_OK, "every 13th of 12");
    is_int(c.no_rope_freq, 0, "is none");
}

int main(void)
{
    test_texts();
    test_numbers();
    test_json();
    return tap_done();
}
