// Package crc32c computes with CRC-32C checksums, those of record batches (magic 2):
// what a change of some bytes does to one, what two pieces have together, and the
// checksums of a buffer's pieces while the buffer is being filled.
package crc32c

import (
	"hash/crc32"
	"math/bits"
)

// Table is the polynomial's.
var Table = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the checksum of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, Table) }

// Combine is the checksum of two pieces behind each other: of the checksum of the
// first, of that of the second, and the second's length in bytes.
func Combine(first, second uint32, length int) uint32 { return Shift(first, uint32(length)) ^ second }

// shifts[k] multiplies with x^(8 * 2^k) modulo the polynomial, bits reflected: it
// shifts a checksum difference by 2^k bytes. Multiplying is linear, so there is a
// table for each four bits of the difference, and the results are combined.
var shifts = func() (t [32][8][16]uint32) {
	power := uint32(1 << 31 >> 8) // x^8; x^0 is the topmost bit
	for k := range t {
		for i := range t[k] {
			for v := range t[k][i] {
				t[k][i][v] = multiply(power, uint32(v)<<(4*i))
			}
		}
		power = multiply(power, power)
	}
	return t
}()

// Shift is the checksum difference d after n bytes that do not differ.
func Shift(d, n uint32) uint32 {
	if d == 0 {
		return 0
	}
	for ; n != 0; n &= n - 1 {
		t := &shifts[bits.TrailingZeros32(n)]
		d = t[0][d&15] ^ t[1][d>>4&15] ^ t[2][d>>8&15] ^ t[3][d>>12&15] ^
			t[4][d>>16&15] ^ t[5][d>>20&15] ^ t[6][d>>24&15] ^ t[7][d>>28]
	}
	return d
}

// multiply is a*b modulo the polynomial in GF(2), bits reflected.
func multiply(a, b uint32) uint32 {
	var product uint32
	for a != 0 {
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
