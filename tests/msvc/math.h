#pragma once
#ifdef __cplusplus
extern "C" {
#endif
double acos(double), ceil(double), cos(double), exp(double), fabs(double), floor(double);
double fma(double, double, double), fmod(double, double), frexp(double, int *), ldexp(double, int);
double log(double), log10(double), log1p(double), log2(double), nextafter(double, double);
double pow(double, double), rint(double), round(double), sin(double), sqrt(double), trunc(double);
double exp2(double), expm1(double), hypot(double, double), nearbyint(double);
float cosf(float), expf(float), fabsf(float), floorf(float), fmaf(float, float, float);
float logf(float), log1pf(float), powf(float, float), sinf(float), sqrtf(float), rintf(float);
float ldexpf(float, int), nextafterf(float, float);
long long llrint(double);
#ifdef __cplusplus
}
#endif
#define HUGE_VAL ((double)(1e308 * 10))
#define INFINITY ((float)HUGE_VAL)
#define NAN (-(float)(INFINITY * 0.0f))
#define isnan(x) ((x) != (x))
#define isinf(x) ((x) - (x) != 0 && (x) == (x))
#define isfinite(x) ((x) - (x) == 0)
#define signbit(x) ((x) < 0)
