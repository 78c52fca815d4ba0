/* Libraries that kernels/cuda/ opens at run time, emulated: cuBLASLt. */
#ifndef GPT_EMU_LIBRARY_H
#define GPT_EMU_LIBRARY_H

namespace emu {
/* The function of that name; NULL where the library is not emulated. lt.cc */
void *library_function(const char *soname, const char *name);
}

#endif
