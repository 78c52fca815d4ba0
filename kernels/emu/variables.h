/* Variables by which tests choose how GPUs are emulated. A value that is
 * misspelled must not look like a test that passed: the process then ends with
 * a message and status 2. One that is empty counts as unset. They are read when
 * they are needed, as tests change them. */
#ifndef GPT_EMU_VARIABLES_H
#define GPT_EMU_VARIABLES_H

#include <initializer_list>
#include <stdint.h>
#include <string.h>

namespace emu {

typedef std::initializer_list<const char *> words;

/* The value, which is one of the words; "" where it is unset. */
const char *word(const char *name, words known);

/* The number, or `otherwise` where it is unset. */
uint64_t number(const char *name, uint64_t otherwise);

/* The value is words between commas, some with "=NUMBER". Returns the number of
 * the word that is asked for, 1 without one, 0 where it is not there. */
uint64_t number_of(const char *name, const char *asked, words known);

/* The process ends: the value is none of the variable. */
[[noreturn]] void refuse(const char *name);

} // namespace emu

#endif
