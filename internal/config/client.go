package config

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"

	"headroom/internal/cli"
	"headroom/internal/secure"
)

const (
	// ClientEnv names the file of the client configuration; set and empty means none.
	ClientEnv = "HEADROOM_CLIENT"
	// ClientFile is the file of a machine; a user's own is headroom/client.yaml below $XDG_CONFIG_HOME or ~/.config.
	ClientFile = "/etc/headroom/client.yaml"
)

// Client is what the commands of users and operators need to reach a cluster: client.yaml. Flags and environment variables
// win over it, key by key.
type Client struct {
	// Coordinators and Schedulers are their addresses, host:port.
	Coordinators []string `yaml:"coordinators,omitempty"`
	Schedulers   []string `yaml:"schedulers,omitempty"`
	// CA, Cert and Key are the files of the cluster's authority and of the caller's certificate.
	CA   string `yaml:"ca,omitempty"`
	Cert string `yaml:"cert,omitempty"`
	Key  string `yaml:"key,omitempty"`
	// TokenFile is the file of a token for coordinators, instead of a certificate.
	TokenFile string `yaml:"token_file,omitempty"`
	// Hooks is where jobs of Hadoop and Spark reach the scheduler, https://HOST:PORT, HooksTokenFile the file of the user's
	// token for it.
	Hooks          string `yaml:"hooks,omitempty"`
	HooksTokenFile string `yaml:"hooks_token_file,omitempty"`
}

// ReadClient reads the client configuration: the file of ClientEnv, the user's own, or the machine's, the first that there
// is. Without one, all is empty. Relative paths are relative to the file's folder.
func ReadClient(lookup func(string) (string, bool)) (Client, error) {
	var c Client
	if name, set := lookup(ClientEnv); set {
		if name == "" {
			return c, nil
		}
		return readClient(name)
	}
	home, _ := lookup("HOME")
	base, _ := lookup("XDG_CONFIG_HOME")
	if base = cmp.Or(base, filepath.Join(home, ".config")); filepath.IsAbs(base) {
		if c, err := readClient(filepath.Join(base, "headroom", "client.yaml")); !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	c, err := readClient(ClientFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // the folder may be closed to users
		return Client{}, nil
	}
	return c, err
}

func readClient(path string) (Client, error) {
	var c Client
	if err := Load(path, &c); err != nil {
		return Client{}, err
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return Client{}, err
	}
	for _, file := range []*string{&c.CA, &c.Cert, &c.Key, &c.TokenFile, &c.HooksTokenFile} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	return c, errors.Join(hasPorts(path+": coordinators", c.Coordinators, "7400"), hasPorts(path+": schedulers", c.Schedulers, "7410"))
}

func hasPorts(key string, addrs []string, port string) error {
	for _, addr := range addrs {
		if err := cli.HasPort(key, addr, port); err != nil {
			return err
		}
	}
	return nil
}

// Fill gives a command the certificate of the configuration, where it has none of its own. A certificate of its own is used
// with its own key.
func (c Client) Fill(files *secure.Files) {
	files.CA = cmp.Or(files.CA, c.CA)
	if files.Cert == "" && files.Key == "" {
		files.Cert, files.Key = c.Cert, c.Key
	}
}
