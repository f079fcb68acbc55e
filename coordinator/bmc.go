package coordinator

import (
	"context"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/ipmi"
)

// BMCConfig is the account that queries the BMCs of lost nodes; one for all of them,
// which needs only the user privilege.
type BMCConfig struct {
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// bmcWait bounds one query: a BMC that hangs does not answer.
const bmcWait = 5 * time.Second

// poweredOff reads the account and returns the function that queries a BMC for its machine's power state; nil without an account.
func (c BMCConfig) poweredOff() (func(ctx context.Context, address string) (bool, error), error) {
	if c.User == "" {
		return nil, nil //nolint:nilnil // no account is a choice, not an error
	}
	text, err := config.ReadFile(c.PasswordFile, 4096)
	if err != nil {
		return nil, &cli.Error{
			Code: "bmc", Exit: cli.ExitUsage, Err: err, Message: "bmc: password_file: " + err.Error(),
			Hint: "store the password of the BMC account in a file with mode 0600, or leave bmc.user empty",
		}
	}
	password := strings.TrimRight(string(text), "\r\n")
	return func(ctx context.Context, address string) (bool, error) {
		return ipmi.PoweredOff(ctx, ipmi.Config{Address: address, User: c.User, Password: password, Timeout: bmcWait})
	}, nil
}
