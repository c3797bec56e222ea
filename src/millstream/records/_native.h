/* CRC-32C and numbers in network order, for the compiled modules. */
#ifndef MILLSTREAM_NATIVE_H
#define MILLSTREAM_NATIVE_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint32_t ms_crc_table[8][256];

static inline void ms_crc_begin(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c & 1) ? (c >> 1) ^ 0x82F63B78u : c >> 1;
        ms_crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            ms_crc_table[t][i] =
                (ms_crc_table[t - 1][i] >> 8) ^ ms_crc_table[0][ms_crc_table[t - 1][i] & 0xFF];
}

static inline uint32_t ms_crc_soft(uint32_t crc, const uint8_t *p, size_t n) {
    while (n && ((uintptr_t)p & 7)) {
        crc = (crc >> 8) ^ ms_crc_table[0][(crc ^ *p++) & 0xFF]; n--;
    }
    while (n >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 |
                              (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = ms_crc_table[7][low & 0xFF] ^ ms_crc_table[6][(low >> 8) & 0xFF] ^
              ms_crc_table[5][(low >> 16) & 0xFF] ^ ms_crc_table[4][low >> 24] ^
              ms_crc_table[3][p[4]] ^ ms_crc_table[2][p[5]] ^
              ms_crc_table[1][p[6]] ^ ms_crc_table[0][p[7]];
        p += 8; n -= 8;
    }
    while (n--) crc = (crc >> 8) ^ ms_crc_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static inline uint32_t ms_crc_hard(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = crc, word;
    while (n >= 8) { memcpy(&word, p, 8); c = _mm_crc32_u64(c, word); p += 8; n -= 8; }
    while (n--) c = _mm_crc32_u8((uint32_t)c, *p++);
    return (uint32_t)c;
}
#endif

static inline uint32_t ms_crc32c(const uint8_t *p, size_t n) {
    #if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~ms_crc_hard(0xFFFFFFFFu, p, n);
    #endif
    return ~ms_crc_soft(0xFFFFFFFFu, p, n);
}

static inline uint32_t ms_crc32c_soft(const uint8_t *p, size_t n) {
    return ~ms_crc_soft(0xFFFFFFFFu, p, n);
}

/* The same pointer, which the compiler takes for another one. */
static inline const uint8_t *ms_another(const uint8_t *p) { __asm__("" : "+r"(p)); return p; }

static inline uint64_t ms_get64(const uint8_t *p) {
    uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v);
}
static inline uint32_t ms_get32(const uint8_t *p) {
    uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v);
}
static inline void ms_put64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
static inline void ms_put32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }

#endif
