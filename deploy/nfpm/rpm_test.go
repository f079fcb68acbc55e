package nfpm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tags of an RPM header that are looked at, from the RPM package format, version 3.
const (
	tagName        = 1000
	tagVersion     = 1001
	tagBuildHost   = 1007
	tagPostIn      = 1024
	tagPreUn       = 1025
	tagPostUn      = 1026
	tagFileModes   = 1030
	tagFileFlags   = 1037
	tagFileUser    = 1039
	tagFileGroup   = 1040
	tagRequires    = 1049
	tagDirIndexes  = 1116
	tagBaseNames   = 1117
	tagDirNames    = 1118
	flagConfig     = 1 << 0
	flagNoReplace  = 1 << 4
	leadBytes      = 96
	preambleBytes  = 16
	entryBytes     = 16
	typeInt16      = 3
	typeInt32      = 4
	headerMagic    = "\x8e\xad\xe8\x01"
	alignment      = 8
	permissionBits = 0o7777
)

// errNoRPM reports bytes that are no RPM package.
var errNoRPM = errors.New("no RPM package")

// rpmHeader holds the words and numbers of each tag.
type rpmHeader struct {
	words   map[uint32][]string
	numbers map[uint32][]uint32
}

// readRPM reads the main header of a package: it stands behind a lead of fixed length
// and the header of the signature, which is filled up to eight bytes.
func readRPM(data []byte) (rpmHeader, error) {
	if len(data) < leadBytes {
		return rpmHeader{}, errNoRPM
	}
	_, used, err := readHeader(data[leadBytes:])
	if err != nil {
		return rpmHeader{}, err
	}
	used = (used + alignment - 1) / alignment * alignment
	h, _, err := readHeader(data[leadBytes+used:])
	return h, err
}

func readHeader(data []byte) (h rpmHeader, used int, err error) {
	if len(data) < preambleBytes || string(data[:4]) != headerMagic {
		return h, 0, errNoRPM
	}
	entries, size := int(binary.BigEndian.Uint32(data[8:])), int(binary.BigEndian.Uint32(data[12:]))
	begin := preambleBytes + entries*entryBytes
	if len(data) < begin+size {
		return h, 0, fmt.Errorf("%w: header of %d bytes", errNoRPM, size)
	}
	h = rpmHeader{words: map[uint32][]string{}, numbers: map[uint32][]uint32{}}
	store := data[begin : begin+size]
	for i := range entries {
		e := data[preambleBytes+i*entryBytes:]
		tag, kind := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:])
		at, count := binary.BigEndian.Uint32(e[8:]), int(binary.BigEndian.Uint32(e[12:]))
		h.take(tag, kind, store[at:], count)
	}
	return h, begin + size, nil
}

// take keeps one entry: numbers of 16 and 32 bits, and words; other kinds are not
// looked at.
func (h rpmHeader) take(tag, kind uint32, at []byte, count int) {
	for i := range count {
		switch kind {
		case typeInt16:
			h.numbers[tag] = append(h.numbers[tag], uint32(binary.BigEndian.Uint16(at[2*i:])))
		case typeInt32:
			h.numbers[tag] = append(h.numbers[tag], binary.BigEndian.Uint32(at[4*i:]))
		case 6, 8, 9: // a word, several, one that is translated
			word, rest, _ := bytes.Cut(at, []byte{0})
			h.words[tag], at = append(h.words[tag], string(word)), rest
		}
	}
}

func (h rpmHeader) word(tag uint32) string { return strings.Join(h.words[tag], " ") }

// files is one line for each file: mode, owner, path, and whether it is configuration.
func (h rpmHeader) files() []string {
	var lines []string
	for i, base := range h.words[tagBaseNames] {
		path := h.words[tagDirNames][h.numbers[tagDirIndexes][i]] + base
		line := fmt.Sprintf("%04o %s:%s %s", h.numbers[tagFileModes][i]&permissionBits, h.words[tagFileUser][i], h.words[tagFileGroup][i], path)
		switch h.numbers[tagFileFlags][i] & (flagConfig | flagNoReplace) {
		case flagConfig | flagNoReplace:
			line += " config, never replaced"
		case flagConfig:
			line += " config, replaced"
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, byPath)
	return lines
}

// byPath orders lines of files.
func byPath(a, b string) int { return strings.Compare(strings.Fields(a)[2], strings.Fields(b)[2]) }
