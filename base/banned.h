/*
 * Calls that nobody here may write; included last, after the system headers. Each has a form that takes a bound or sets
 * close-on-exec in the call that makes the descriptor.
 */
#pragma once

#pragma GCC poison strcpy strcat sprintf vsprintf gets atoi atol atoll strtok
#pragma GCC poison system popen vfork dup pipe accept creat tmpnam mktemp signal
