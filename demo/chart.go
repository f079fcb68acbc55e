package demo

func (d *show) chart() error { return nil }
