package idem

// Limits of a number in the form d.ddd times a power of ten.
const (
	maxDigits   = 1000
	maxExponent = 308
)

// number renders a JSON number by its exact value, without a float in between.
func (c *canon) number(raw []byte) error {
	if plainInteger(raw) {
		c.out = append(c.out, raw...)
		return nil
	}
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	digits, point, exp := c.tmp[:0], -1, int64(0)
	for i, b := range raw {
		if b == '.' {
			point = i
		} else if b == 'e' || b == 'E' {
			exp = exponent(raw[i+1:])
			break
		} else {
			digits = append(digits, b)
		}
	}
	c.tmp = digits
	if point < 0 {
		point = len(digits)
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
		point--
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	if len(digits) == 0 {
		c.out = append(c.out, '0')
		return nil
	}
	exp += int64(point) - 1
	if len(digits) > maxDigits {
		return invalid(c.dec.StackPointer(), "a number of more than %d digits", maxDigits)
	}
	if exp > maxExponent || exp < -maxExponent {
		return invalid(c.dec.StackPointer(), "a number beyond the exponents -%d to %d", maxExponent, maxExponent)
	}
	if negative {
		c.out = append(c.out, '-')
	}
	c.out = layout(c.out, digits, int(exp))
	return nil
}

// plainInteger reports whether the number is already in its canonical form, as
// most are.
func plainInteger(raw []byte) bool {
	if raw[0] == '-' {
		raw = raw[1:]
		if raw[0] == '0' {
			return false
		}
	}
	for _, b := range raw {
		if b < '0' || b > '9' {
			return false
		}
	}
	return len(raw) <= maxPlain
}

// exponent reads the digits behind the e. Far beyond every limit it stops
// counting: no input is long enough to make up for it.
func exponent(raw []byte) int64 {
	negative := raw[0] == '-'
	if negative || raw[0] == '+' {
		raw = raw[1:]
	}
	var n int64
	for _, b := range raw {
		if n < 1<<50 {
			n = n*10 + int64(b-'0')
		}
	}
	if negative {
		return -n
	}
	return n
}

// maxPlain is the most digits before the point of a number that is written
// without an exponent.
const maxPlain = 21

// layout writes d.ddd times ten to the exp as ECMAScript (and so RFC 8785) lays
// numbers out: without an exponent from 1e-6 up to below 1e21.
func layout(dst, digits []byte, exp int) []byte {
	switch {
	case exp >= maxPlain || exp < -6:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		dst = append(dst, 'e')
		if exp < 0 {
			dst, exp = append(dst, '-'), -exp
		} else {
			dst = append(dst, '+')
		}
		if exp >= 100 {
			dst = append(dst, byte('0'+exp/100))
		}
		if exp >= 10 {
			dst = append(dst, byte('0'+exp/10%10))
		}
		return append(dst, byte('0'+exp%10))
	case exp < 0:
		dst = append(dst, '0', '.')
		for range -exp - 1 {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	case len(digits) > exp+1:
		dst = append(append(dst, digits[:exp+1]...), '.')
		return append(dst, digits[exp+1:]...)
	}
	dst = append(dst, digits...)
	for range exp + 1 - len(digits) {
		dst = append(dst, '0')
	}
	return dst
}
