/* See needle_list.h. The texts are a trie, so that a search looks at each place
 * once, however many they are. Start at gpt_needle_list_read(). */
#include "tokenizer/needle_list.h"

#include <string.h>

/* Characters that stand for themselves only behind a backslash, and those that
 * may have one without need, as Python's re.escape() writes them. */
#define SYNTAX ".^$*+?()[]{}|\\"
#define ESCAPED SYNTAX "-&~# \t\n\r\v\f"

/* A byte of some texts, below the bytes before it. */
struct node {
    uint32_t child, sibling; /* 0: none */
    uint32_t rank;           /* of the text that ends here, plus 1; 0: none */
    uint8_t byte;
};

struct gpt_needle_list {
    struct node *nodes; /* nodes[0] is the root */
    uint32_t n_nodes;
    uint32_t first[256]; /* children of the root by their byte, 0: none */
};

/* ---- reading ---- */

/* The next character of a text, a byte of UTF-8; 0 for what ends one. *known is
 * false where the character means something else. */
static char take_byte(const char **p, bool *known)
{
    static const char controls[] = "n\nr\rt\t";
    char c = *(*p)++;

    *known = true;
    if (c != '\\') {
        *known = !c || c == '|' || !strchr(SYNTAX, c);
        return c == '|' ? '\0' : c;
    }
    c = *(*p)++;
    for (const char *i = controls; *i; i += 2)
        if (c == *i)
            return i[1];
    *known = c && strchr(ESCAPED, c);
    return c;
}

static uint32_t child_of(const struct gpt_needle_list *l, uint32_t parent,
                         char byte)
{
    uint32_t i = parent ? l->nodes[parent].child : l->first[(uint8_t)byte];

    while (i && l->nodes[i].byte != (uint8_t)byte)
        i = l->nodes[i].sibling;
    return i;
}

static uint32_t add_child(struct gpt_needle_list *l, uint32_t parent, char byte)
{
    const uint32_t i = l->n_nodes++;
    struct node *node = &l->nodes[i];

    node->byte = (uint8_t)byte;
    if (parent) {
        node->sibling = l->nodes[parent].child;
        l->nodes[parent].child = i;
    } else {
        l->first[(uint8_t)byte] = i;
    }
    return i;
}

/* Adds a text from p on; returns where it ends, at a bar or at the NUL, or NULL
 * for what is no plain text. */
static const char *add_text(struct gpt_needle_list *l, const char *p,
                            uint32_t rank)
{
    uint32_t at = 0;
    bool known;
    char c;

    while ((c = take_byte(&p, &known)) && known) {
        const uint32_t next = child_of(l, at, c);

        at = next ? next : add_child(l, at, c);
    }
    if (!known || at == 0)
        return NULL;
    if (!l->nodes[at].rank) /* of two that are the same the first one counts */
        l->nodes[at].rank = rank + 1;
    return p - 1;
}

/* The only text of a list: the way from the root. */
static bool copy_only(const struct gpt_needle_list *l, struct gpt_str *only,
                      struct gpt_arena *arena)
{
    char *text = gpt_arena_alloc(arena, l->n_nodes, 1);

    for (uint32_t i = 1; text && i < l->n_nodes; i++)
        text[i - 1] = (char)l->nodes[i].byte;
    *only = (struct gpt_str){text, l->n_nodes - 1};
    return text != NULL;
}

bool gpt_needle_list_read(const struct gpt_needle_list **list,
                          struct gpt_str *only, const char *regex,
                          struct gpt_arena *arena)
{
    const size_t len = strlen(regex);
    struct gpt_needle_list *l = gpt_arena_alloc(arena, 1, sizeof(*l));
    uint32_t rank = 0;

    *list = NULL;
    if (!l || len >= UINT32_MAX)
        return false;
    *l = (struct gpt_needle_list){.n_nodes = 1};
    l->nodes = gpt_arena_alloc(arena, len + 1, sizeof(*l->nodes));
    if (!l->nodes)
        return false;
    memset(l->nodes, 0, (len + 1) * sizeof(*l->nodes));
    for (const char *p = regex;; p++) {
        p = add_text(l, p, rank++);
        if (!p)
            return false;
        if (!*p)
            break;
    }
    if (rank == 1)
        return copy_only(l, only, arena);
    *list = l;
    return true;
}

/* ---- searching ---- */

/* Bytes of the text of the list that text[0..len) begins with, 0 for none;
 * len > 0. */
static size_t match_at(const struct gpt_needle_list *l, const char *text,
                       size_t len)
{
    uint32_t best = UINT32_MAX;
    size_t n = 0;

    for (uint32_t at = 0, i = 0; i < len && (at = child_of(l, at, text[i]));
         i++)
        if (l->nodes[at].rank && l->nodes[at].rank < best) {
            best = l->nodes[at].rank;
            n = i + 1;
        }
    return n;
}

bool gpt_needle_list_find(const struct gpt_needle_list *l, const char *text,
                          size_t len, size_t at, size_t *begin, size_t *end)
{
    for (; at < len; at++) {
        const size_t n =
            l->first[(uint8_t)text[at]] ? match_at(l, text + at, len - at) : 0;

        if (n == 0)
            continue;
        *begin = at;
        *end = at + n;
        return true;
    }
    return false;
}
