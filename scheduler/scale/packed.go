package scale

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// blockMost bounds a block of a compressed log: the largest of lz4-java.
	blockMost = 32 << 20
	// windowMost bounds how far zstd may look back: the largest that the zstd program reads by itself has 128 MB, Spark's 8.
	windowMost = 128 << 20
	// lz4Head begins each block of lz4-java, and lz4Seed is that of its checksums.
	lz4Head = "LZ4Block"
	lz4Seed = 0x9747b28c
)

var errPacked = errors.New("compressed log cannot be read")

// unpack returns the text of a log in any form that Spark, Hadoop or the usual programs write. What it is follows from its
// first bytes.
func unpack(r io.Reader) (io.ReadCloser, error) {
	from := bufio.NewReader(r)
	head, err := from.Peek(8)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	is := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case is("\x1f\x8b"):
		return gzip.NewReader(from)
	case is("\x28\xb5\x2f\xfd"):
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowMost), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case is("\x04\x22\x4d\x18"):
		return io.NopCloser(lz4.NewReader(from)), nil
	case is(lz4Head):
		return io.NopCloser(&blocks{r: from}), nil
	case is("\x82SNAPPY\x00"), is("ZV\x00"), is("ZV\x01"):
		return nil, fmt.Errorf("%w: compressed with snappy or LZF, which is not read", errPacked)
	}
	return io.NopCloser(from), nil
}

// blocks reads the text of a log in blocks of lz4-java.
type blocks struct {
	r    *bufio.Reader
	text []byte
}

func (b *blocks) Read(p []byte) (n int, err error) {
	for len(b.text) == 0 {
		if b.text, err = b.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

// take reads n bytes in the middle of a stream.
func (b *blocks) take(n int64) ([]byte, error) {
	if n < 0 || n > blockMost {
		return nil, fmt.Errorf("%w: a block of %d bytes", errPacked, n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(b.r, data); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return data, nil
}

// next reads a block: magic, method, both lengths, a checksum, data. A stream ends with a block without text; io.EOF where no
// other follows.
func (b *blocks) next() ([]byte, error) {
	head, err := b.take(21)
	if err != nil {
		return nil, err
	}
	if string(head[:8]) != lz4Head {
		return nil, fmt.Errorf("%w: no LZ4 block where one must begin", errPacked)
	}
	size := int64(binary.LittleEndian.Uint32(head[13:]))
	data, err := b.take(int64(binary.LittleEndian.Uint32(head[9:])))
	switch {
	case err != nil:
		return nil, err
	case size > blockMost:
		return nil, fmt.Errorf("%w: a block of %d bytes", errPacked, size)
	case size == 0:
		_, err := b.r.Peek(1) // another stream may follow
		return nil, err
	}
	text := data
	if head[8]&0xf0 == 0x20 {
		text = make([]byte, size)
		if n, err := lz4.UncompressBlock(data, text); err != nil || n != len(text) {
			return nil, fmt.Errorf("%w: an LZ4 block: %w", errPacked, err)
		}
	}
	if int64(len(text)) != size || xxh32(text)&0x0fffffff != binary.LittleEndian.Uint32(head[17:]) {
		return nil, fmt.Errorf("%w: checksum of an LZ4 block", errPacked)
	}
	return text, nil
}

// xxh32 is the checksum of lz4-java's blocks.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	seed := uint32(lz4Seed)
	h, size := seed+p5, uint32(len(b))
	if len(b) >= 16 {
		v := [4]uint32{seed, seed, seed, seed}
		for i, add := range [4]uint32{(p1 + p2) & 0xffffffff, p2, 0, 1<<32 - p1} {
			v[i] += add
		}
		for ; len(b) >= 16; b = b[16:] {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(b[4*i:])*p2, 13) * p1
			}
		}
		h = bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
