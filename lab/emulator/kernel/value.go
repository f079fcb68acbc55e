package kernel

import (
	"strconv"
	"strings"
	"syscall"
)

// ParseUint is the kernel's kstrtoull: decimal digits, one leading plus sign
// permitted, nothing else. Values are bounded to 63 bits. It fails with EINVAL.
func ParseUint(text string) (int64, error) {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 63)
	if err != nil {
		return 0, syscall.EINVAL
	}
	return int64(v), nil
}

// ParseScan is the kernel's sscanf("%u") of cpufreq: leading blanks and anything
// behind the digits are ignored. It fails with EINVAL.
func ParseScan(text string) (int64, error) {
	text = strings.TrimLeft(text, " \t")
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	v, err := strconv.ParseUint(text[:end], 10, 32)
	if err != nil {
		return 0, syscall.EINVAL
	}
	return int64(v), nil
}

// ParseBool is the kernel's kstrtobool, which looks at one letter, or at two
// after an o. It fails with EINVAL.
func ParseBool(text string) (bool, error) {
	switch {
	case text == "":
		return false, syscall.EINVAL
	case strings.ContainsAny(text[:1], "1yYtT"):
		return true, nil
	case strings.ContainsAny(text[:1], "0nNfF"):
		return false, nil
	case strings.HasPrefix(strings.ToLower(text), "on"):
		return true, nil
	case strings.HasPrefix(strings.ToLower(text), "of"):
		return false, nil
	default:
		return false, syscall.EINVAL
	}
}

// checkUint and checkBool only report whether the kernel could read text.
func checkUint(text string) error { _, err := ParseUint(text); return err }
func checkBool(text string) error { _, err := ParseBool(text); return err }
