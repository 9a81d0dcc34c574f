package batch

import "hash/crc32"

// castagnoli is the polynomial of CRC-32C (magic 2).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// powers[k] is x^(8 * 2^k) modulo the polynomial, bits reflected: multiplying a
// checksum difference with it shifts it by 2^k bytes.
var powers = func() (t [32]uint32) {
	t[0] = 1 << 31 >> 8 // x^8; x^0 is the topmost bit
	for k := 1; k < len(t); k++ {
		t[k] = multiply(t[k-1], t[k-1])
	}
	return t
}()

// shift is the checksum difference d after n bytes that do not differ.
func shift(d, n uint32) uint32 {
	if d == 0 {
		return 0
	}
	for k := 0; n != 0; k++ {
		if n&1 != 0 {
			d = multiply(powers[k], d)
		}
		n >>= 1
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
