# CRC-32C, as the package crc32c reckons it; with the processor's instruction where it has one.
#
# Invariants: whichever way is taken, the result is the same; which one is known before the first
# use.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static uint32_t ls_table[8][256];

    static void ls_crc_init(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
            ls_table[0][i] = crc;
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int k = 1; k < 8; k++)
                ls_table[k][i] = ls_table[k - 1][i] >> 8 ^ ls_table[0][ls_table[k - 1][i] & 0xFF];
    }

    static uint32_t ls_crc_soft(uint32_t crc, const uint8_t *p, size_t n) {
        for (; n >= 8; n -= 8, p += 8)
            crc = ls_table[7][(crc ^ p[0]) & 0xFF] ^ ls_table[6][(crc >> 8 ^ p[1]) & 0xFF]
                ^ ls_table[5][(crc >> 16 ^ p[2]) & 0xFF] ^ ls_table[4][(crc >> 24 ^ p[3]) & 0xFF]
                ^ ls_table[3][p[4]] ^ ls_table[2][p[5]] ^ ls_table[1][p[6]] ^ ls_table[0][p[7]];
        for (; n; n--) crc = crc >> 8 ^ ls_table[0][(crc ^ *p++) & 0xFF];
        return crc;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t ls_crc_hard(uint32_t crc, const uint8_t *p, size_t n) {
        uint64_t wide = crc, word;
        for (; n >= 8; n -= 8, p += 8) {
            memcpy(&word, p, 8);
            wide = __builtin_ia32_crc32di(wide, word);
        }
        crc = (uint32_t)wide;
        for (; n; n--) crc = __builtin_ia32_crc32qi(crc, *p++);
        return crc;
    }
    static int ls_crc_has(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    #define ls_crc_hard ls_crc_soft
    static int ls_crc_has(void) { return 0; }
    #endif

    static uint32_t ls_crc32c(const uint8_t *p, size_t n, uint32_t crc, int hard) {
        return ~(hard ? ls_crc_hard(~crc, p, n) : ls_crc_soft(~crc, p, n));
    }
    """
    void ls_crc_init() noexcept nogil
    int ls_crc_has() noexcept nogil
    uint32_t ls_crc32c(const u8* p, size_t n, uint32_t crc, int hard) noexcept nogil

ls_crc_init()
cdef int HARD_CRC = ls_crc_has()


def crc32c(bytes data not None, uint32_t before=0, bint soft=False):
    return ls_crc32c(data_of(data), size_of(data), before, 0 if soft else HARD_CRC)


cdef inline uint32_t row_crc(bytes key, const u8* value, u64 size) noexcept:
    """The checksum of a row of the index."""
    cdef uint32_t crc = ls_crc32c(data_of(key), size_of(key), 0, HARD_CRC)
    return ls_crc32c(value, size, crc, HARD_CRC)


cdef enum:                  # of a frame of the log, see format.FRAME_HEAD_AFTER_CRC
    HEAD = 32               # its CRC, then what that covers besides the position
    COVERED = 36            # what it covers before the payload: the position, the head behind it


cdef inline uint32_t frame_crc(const u8* p, u64 at, u64 size, uint32_t seed) noexcept nogil:
    """The checksum that a frame with `size` bytes of payload has at position `at`."""
    cdef u8 covered[COVERED]
    put_64(covered, at)
    memcpy(covered + 8, p + 4, HEAD - 4)
    return ls_crc32c(p + HEAD, size, ls_crc32c(covered, COVERED, seed, HARD_CRC), HARD_CRC)
