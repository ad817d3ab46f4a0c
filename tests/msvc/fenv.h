#pragma once
typedef struct fenv_t { unsigned long _Fe_ctl, _Fe_stat; } fenv_t;
#ifdef __cplusplus
extern "C" {
#endif
extern const fenv_t _Fenv1;
int fegetenv(fenv_t *env);
int fesetenv(const fenv_t *env);
#ifdef __cplusplus
}
#endif
#define FE_DFL_ENV (&_Fenv1)
