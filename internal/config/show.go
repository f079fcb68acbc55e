package config

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
)

// Show writes a configuration as the file that would set it, or as JSON.
// Quantities keep their units either way.
func Show(w io.Writer, cfg any, asJSON bool) error {
	data, err := yaml.Marshal(cfg)
	if err == nil && asJSON {
		data, err = indented(data)
	}
	if err != nil {
		return fmt.Errorf("show configuration: %w", err)
	}
	_, err = w.Write(data)
	return err
}

func indented(doc []byte) ([]byte, error) {
	var v any
	if err := yaml.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
