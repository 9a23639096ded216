package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span as Go writes it: "30s", "1h30m".
type Duration time.Duration

func (d *Duration) parse(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New(`is no duration; write it like "200ms", "30s", "10m" or "720h"`)
	}
	if v < 0 {
		return errors.New("is negative")
	}
	*d = Duration(v)
	return nil
}

func (d *Duration) example() string { return `a duration like "30s"` }

// or is the duration, or what holds where it is not given.
func (d *Duration) or(otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return time.Duration(*d)
}

// Size is a number of bytes: "4MiB", "64KiB", "1000B".
type Size int64

func (z *Size) parse(s string) error {
	digits := strings.TrimRight(s, "BKMGi")
	n, err := strconv.ParseInt(digits, 10, 64)
	factor, ok := map[string]int64{"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[s[len(digits):]]
	if err != nil || !ok || n < 0 || n > math.MaxInt64/factor {
		return errors.New(`is no size; write it like "512KiB" or "4MiB"`)
	}
	*z = Size(n * factor)
	return nil
}

func (z *Size) example() string { return `a size like "4MiB"` }
