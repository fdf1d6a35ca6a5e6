/* For the sake of the include line. */
#include <rtl.h>
