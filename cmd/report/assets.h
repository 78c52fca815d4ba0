/* The parts of the page, from share/report/, inside the program: a report needs
 * no installed file. */
#ifndef GPT_CMD_REPORT_ASSETS_H
#define GPT_CMD_REPORT_ASSETS_H

#include <stddef.h>

enum gpt_asset_name { GPT_ASSET_HTML, GPT_ASSET_CSS, GPT_ASSET_JS };

struct gpt_asset {
    const char *data; /* not terminated */
    size_t len;
};

struct gpt_asset gpt_asset_of(enum gpt_asset_name name);

#endif
