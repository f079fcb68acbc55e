package coordinator

import _ "time/tzdata" // schedules keep their time zones on a server without /usr/share/zoneinfo
