/* msvc/: just enough of Microsoft's headers for hygiene.py to have clang read ckptresume.h in their
   dialect. Declarations only, by their documentation; nothing that it does not use. */
#pragma once
#define assert(x) ((void)((x) || (ckr_stub_assert(), 0)))
#ifdef __cplusplus
extern "C"
#endif
void ckr_stub_assert(void);
