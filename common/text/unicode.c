/* The part of unicode.h that is too long to be inline. */
#include "text/unicode.h"

#include "text/unicode_nfc.h"

bool gpt_unicode_in(const uint32_t (*ranges)[2], size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) { /* the first range that ends at cp or later */
        const size_t middle = (low + high) / 2;

        if (cp > ranges[middle][1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && cp >= ranges[low][0];
}

bool gpt_unicode_is_word(uint32_t cp)
{
    /* Alphabetic, Join_Control and Pc beyond the classes below */
    static const uint32_t others[][2] = {
        {0x5F, 0x5F},       {0x200C, 0x200D},   {0x203F, 0x2040},
        {0x2054, 0x2054},   {0x24B6, 0x24E9},   {0xFE33, 0xFE34},
        {0xFE4D, 0xFE4F},   {0xFF3F, 0xFF3F},   {0x1F130, 0x1F149},
        {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
    };
    enum gpt_unicode_class c = gpt_unicode_class(cp);

    if (c >= GPT_UC_LO || c == GPT_UC_M)
        return true;
    if (c == GPT_UC_N) /* Nd and Nl are word characters, No is not */
        return !gpt_unicode_in(gpt_unicode_no, gpt_unicode_n_no, cp);
    return gpt_unicode_in(others, GPT_COUNT(others), cp);
}
