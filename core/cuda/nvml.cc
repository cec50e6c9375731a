#include "core/device.h"
