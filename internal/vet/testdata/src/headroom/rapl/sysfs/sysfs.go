package sysfs

type File interface {
	Pread(buf []byte) (int, error)
	Pwrite(text []byte) (int, error)
}

type Control struct{ file File }

func (c *Control) Read() (int64, error) { return 0, nil }

func (c *Control) Write(v int64) (int64, error) {
	c.file.Pwrite(nil)
	return c.Read()
}

func (c *Control) careless() {
	c.file.Pwrite(nil) // want `Pwrite writes hardware and nothing reads back`
}

type wrapped struct{ file File }

func (w wrapped) Pwrite(text []byte) (int, error) { return w.file.Pwrite(text) }
