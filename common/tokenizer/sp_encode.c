/* What both searches of sp_encode.h share: how a piece becomes ids. The
 * searches are in sp_bpe.c and sp_unigram.c. */
#include "tokenizer/sp_encode.h"

void gpt_sp_scratch_free(struct gpt_sp_scratch *s)
{
    gpt_free(s->symbols);
    gpt_pair_heap_free(&s->heap);
    gpt_free(s->paths);
    *s = (struct gpt_sp_scratch){0};
}

int gpt_sp_check_len(size_t len, struct gpt_err *err)
{
    return len <= INT32_MAX
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA, "a text has %zu bytes, must have "
                          "less than 2 GiB", len);
}

/* A model without bytes to fall back to has one unknown id for all that it does
 * not know in a row, as SentencePiece joins such pieces into one. */
int gpt_sp_add_piece(const struct gpt_sp_model *m, const char *piece,
                     size_t len, int32_t id, size_t first,
                     struct gpt_ids *ids, struct gpt_err *err)
{
    if (id != m->unk)
        return gpt_ids_add(ids, &id, 1, err);
    for (size_t i = 0; m->byte_fallback && i < len; i++)
        GPT_TRY(gpt_ids_add(ids, &m->byte_id[(uint8_t)piece[i]], 1, err));
    if (m->byte_fallback || (ids->len > first && ids->data[ids->len - 1] == id))
        return GPT_OK;
    return gpt_ids_add(ids, &id, 1, err);
}
