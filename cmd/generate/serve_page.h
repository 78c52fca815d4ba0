/* The web page at "/": a prompt, its settings, and the text as it comes. */
#ifndef GPT_CMD_GENERATE_SERVE_PAGE_H
#define GPT_CMD_GENERATE_SERVE_PAGE_H

extern const char *const gpt_serve_page;

#endif
