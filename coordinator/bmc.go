package coordinator

import (
	"context"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/ipmi"
)

// BMCConfig is how the BMCs of lost nodes are asked; one account for all of them,
// which needs no more than the privilege of a user.
type BMCConfig struct {
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// bmcWait bounds one question: a BMC that hangs answers nothing at all.
const bmcWait = 5 * time.Second

// poweredOff reads the account and returns what asks a BMC whether its machine is off; nil without an account.
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
