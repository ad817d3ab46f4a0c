/* Casts against arithmetic in double: every 16-bit value, every halfway point, and random bits. */
#define CKPTRESUME_IMPLEMENTATION
#include "ckptresume.h"
#include "t.h"

/* The value of a finite 16-bit float by its definition; the code of infinity gives the next power
   of two. */
static double value_of(unsigned h, int exp_bits, int man_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, e = (int)(h >> man_bits) & ((1 << exp_bits) - 1);
    double m = (double)(h & ((1u << man_bits) - 1)), v;
    v = e ? ldexp(1.0 + ldexp(m, -man_bits), e - bias) : ldexp(m, 1 - bias - man_bits);
    return h >> 15 ? -v : v;
}

/* Nearest even by search: halves the ordered magnitude codes 0..inf. */
static unsigned nearest(double v, int exp_bits, int man_bits)
{
    unsigned sign = signbit(v) ? 0x8000u : 0, lo = 0, hi = ((1u << exp_bits) - 1) << man_bits;
    double a = fabs(v), x, y;
    if (a >= value_of(hi, exp_bits, man_bits)) return sign | hi;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;
        if (value_of(mid, exp_bits, man_bits) <= a) lo = mid;
        else hi = mid;
    }
    x = a - value_of(lo, exp_bits, man_bits);
    y = value_of(hi, exp_bits, man_bits) - a;
    return sign | (x < y || (x <= y && lo % 2 == 0) ? lo : hi);
}

static bool same_f32(float a, float b)
{
    return ckr__bits_of_f32(a) == ckr__bits_of_f32(b);
}

static void f16_round_trip(void)
{
    unsigned h;
    for (h = 0; h < 65536; h++) {
        float f = ckr__f32_of_f16((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff), inf = (h & 0x7fff) == 0x7c00;
        uint16_t back = ckr__f16_of_f32(f);
        if (nan) CHECK(f != f && back == (h | 0x200));
        else if (inf) CHECK(isinf(f) && back == h);
        else CHECK(same_f32(f, (float)value_of(h, 5, 10)) && back == h);
    }
}

static void bf16_round_trip(void)
{
    unsigned h;
    for (h = 0; h < 65536; h++) {
        float f = ckr__f32_of_bits((uint32_t)h << 16);
        bool nan = (h & 0x7f80) == 0x7f80 && (h & 0x7f);
        uint16_t back = ckr__bf16_of_f32(f);
        CHECK(back == (nan ? 0x7fc0 : h));
    }
}

static void check_rne(float f)
{
    if (f != f || isinf(f)) return;
    CHECK_INT(ckr__f16_of_f32(f), nearest((double)f, 5, 10));
    CHECK_INT(ckr__bf16_of_f32(f), nearest((double)f, 8, 7));
}

/* Halfway between neighbours, and one bit of f32 to each side of it. */
static void halfway_points(void)
{
    unsigned h;
    int d;
    for (h = 0; h < 0x7c00; h++) {
        float mid = (float)((value_of(h, 5, 10) + value_of(h + 1, 5, 10)) / 2);
        for (d = -1; d <= 1; d++) check_rne(ckr__f32_of_bits(ckr__bits_of_f32(mid) + (uint32_t)d));
        check_rne(-mid);
    }
    for (h = 0; h < 0x7f80; h++)
        for (d = 0x7fff; d <= 0x8001; d++)
            check_rne(ckr__f32_of_bits(((uint32_t)h << 16) + (uint32_t)d));
}

static void random_bits(void)
{
    t_rng r = { 5 };
    int i;
    for (i = 0; i < 100000; i++) check_rne(ckr__f32_of_bits((uint32_t)t_next(&r)));
}

static void loads(void)
{
    const int64_t i64 = -5;
    const int32_t i32 = -6;
    const int16_t i16 = -7;
    const uint8_t u8 = 250;
    const double f64 = 0.1;
    CHECK(ckr__load_f64(CKR_DTYPE_I64, (const uint8_t *)&i64) <= -5);
    CHECK(ckr__load_f64(CKR_DTYPE_I32, (const uint8_t *)&i32) <= -6);
    CHECK(ckr__load_f64(CKR_DTYPE_I16, (const uint8_t *)&i16) <= -7);
    CHECK(ckr__load_f64(CKR_DTYPE_U8, &u8) >= 250);
    CHECK(ckr__load_f64(CKR_DTYPE_I8, &u8) <= -6);
    CHECK(!(ckr__load_f64(CKR_DTYPE_F64, (const uint8_t *)&f64) < f64));
}

/* Arrays in every pair of types, against the single casts. f64 goes through f32, as torch does. */
static void arrays(void)
{
    static const ckr_dtype types[] = { CKR_DTYPE_F16, CKR_DTYPE_BF16, CKR_DTYPE_F32,
                                       CKR_DTYPE_F64 };
    t_rng r = { 6 };
    int from, to, i;
    for (from = 0; from < 4; from++)
        for (to = 0; to < 4; to++) {
            uint8_t src[8 * 257], dst[8 * 257 + 1];
            size_t a = ckr_dtype_size(types[from]), b = ckr_dtype_size(types[to]);
            for (i = 0; i < 257; i++) {
                float f = ckr__f32_of_bits((uint32_t)t_next(&r));
                double d = (double)f;
                uint16_t h;
                if (f != f) f = 1, d = 1;
                h = types[from] == CKR_DTYPE_F16 ? ckr__f16_of_f32(f) : ckr__bf16_of_f32(f);
                if (a == 2) memcpy(src + 2 * i, &h, 2);
                else if (a == 4) memcpy(src + 4 * i, &f, 4);
                else memcpy(src + 8 * i, &d, 8);
            }
            memset(dst, 0xcc, sizeof dst);
            ckr__convert(types[to], dst, types[from], src, 257);
            CHECK(dst[b * 257] == 0xcc);
            for (i = 0; i < 257; i++) {
                double d = ckr__load_f64(types[from], src + a * (size_t)i);
                float f = (float)d;
                uint16_t h = types[to] == CKR_DTYPE_F16 ? ckr__f16_of_f32(f) : ckr__bf16_of_f32(f);
                const void *want = b == 2   ? (const void *)&h
                                   : b == 4 ? (const void *)&f
                                            : (const void *)&d;
                CHECK(!memcmp(dst + b * (size_t)i, want, b));
            }
        }
}

static uint64_t fnv(const uint8_t *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    while (n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

/* Each fp8 is what is made of its value, and a half, a float and a double become the same; the
   hashes are those of torch 2.15's own casts of all halfs. */
static void eight_bits(void)
{
    static const struct { ckr_dtype t; uint64_t hash; } rows[] = {
        { CKR_DTYPE_F8_E4M3FN, 0x2d724a8149ff1225u }, { CKR_DTYPE_F8_E5M2, 0x087ccdde80d93f25u }
    };
    static uint16_t half[65536];
    static float single[65536];
    static double twice[65536];
    static uint8_t out[3][65536];
    unsigned i, k;
    for (i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    ckr__convert(CKR_DTYPE_F32, (uint8_t *)single, CKR_DTYPE_F16, (const uint8_t *)half, 65536);
    ckr__convert(CKR_DTYPE_F64, (uint8_t *)twice, CKR_DTYPE_F16, (const uint8_t *)half, 65536);
    for (k = 0; k < 2; k++) {
        const ckr_dtype t = rows[k].t;
        ckr__convert(t, out[0], CKR_DTYPE_F16, (const uint8_t *)half, 65536);
        ckr__convert(t, out[1], CKR_DTYPE_F32, (const uint8_t *)single, 65536);
        ckr__convert(t, out[2], CKR_DTYPE_F64, (const uint8_t *)twice, 65536);
        CHECK(fnv(out[0], 65536) == rows[k].hash);
        CHECK(!memcmp(out[0], out[1], 65536) && !memcmp(out[0], out[2], 65536));
        for (i = 0; i < 256; i++) {
            const uint8_t v = (uint8_t)i;
            const double x = ckr__load_f64(t, &v);
            const uint8_t back = ckr__f8_of_f32(t, (float)x);
            if (x != x) CHECK(back == (0x7f | (v & 0x80)));
            else if (isinf(x)) CHECK(t == CKR_DTYPE_F8_E5M2 && back == v);
            else CHECK(back == v);
        }
    }
}

static void swapping(void)
{
    uint8_t p[10], q[10];
    size_t i, unit;
    for (unit = 1; unit <= 8; unit *= 2) {
        for (i = 0; i < 10; i++) p[i] = q[i] = (uint8_t)i;
        ckr__swap_bytes(p, 8, unit);
        for (i = 0; i < 8; i++) CHECK_INT(p[i], q[i / unit * unit + unit - 1 - i % unit]);
        CHECK(p[8] == 8 && p[9] == 9);
    }
}

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    RUN(f16_round_trip);
    RUN(bf16_round_trip);
    RUN(halfway_points);
    RUN(random_bits);
    RUN(loads);
    RUN(arrays);
    RUN(eight_bits);
    RUN(swapping);
    return t_end();
}
