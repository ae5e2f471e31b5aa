/*
 * Lanes: how code in a session calls out. A process image has one capability socket (SOCK_SEQPACKET), shared by its threads,
 * subshells and children. To call, code makes a SOCK_STREAM socketpair and sends one end over the capability socket as a
 * message of one byte ('L') with that descriptor attached: that pair is a lane. Frames go both ways on it; the sender keeps it for
 * its next calls (one lane a thread is the rule) or closes it. The engine knows a lane's session by the capability socket it came
 * over, so nothing in a frame can forge an origin; answers go back on the lane that asked, so no two callers can mix them.
 *
 * Where args, kwargs or value hold arrays or frames (ext 3, bridge/python/furca/_frames.py), one sealed memfd with their buffers rides on the frame.
 *
 * FROM_LANE (`call`: the caller's own number, unique on the lane; several may be under way)
 *   CAPABILITY  name: str  args: array  kwargs: map  allowed: [str]?  read: bool?
 *   FUNCTION    name: str  args: array  kwargs: map  state_mode: str?  session_id: int?  session_name: str?  allowed: [str]?  frames: str?
 *                                        `frames`: the value may hold arrays and frames, for a reader that has these versions
 *   DESCRIBE    (no fields)   -> VALUE {capabilities: [{name, effect, doc?, params?}], functions: [{name, language, doc?}]}
 *   RELEASE     handle: str        no answer
 *   BELL        (no fields)        wakes the engine, which then looks at the lane's shared memory
 *   ANSWER      value: any         to a CALL, with its number
 *   RAISED      type: str  message: str  traceback: str?      likewise
 * TO_LANE
 *   VALUE       value: any
 *   FAILED      type: str  message: str  traceback: str?  suggestion: str?
 *               frames: str?             of a FUNCTION whose arrays could not be read: nothing ran, and these versions are there
 *   INLINE      name: str  source: str  capabilities: [str]?   answers a FUNCTION whose target is the caller's own session: run it there, by yourself
 *                                        (the args and kwargs are those that were sent)
 *   CALL        object: str  name: str  args: array  kwargs: map  read: bool     `call`: the engine's number; comes while a call of the lane is open
 *   LET_GO      object: str        no answer
 * `read`: `name` is an attribute that is not called. An empty `name` calls the object itself. `object` is the text that code gave in an ext 2.
 * `allowed`: the call comes from a stored function that runs in this process and may call no other capabilities. It is the host's own
 * word, on top of what the engine knows of the call.
 */
#pragma once

#define FURCA_LANE_OPEN 'L'
#define FURCA_LANE_OPEN_SHARED                                                                                         \
	'S' /* as 'F', with a second descriptor: the lane's shared memory (ring.h). Where the engine's configuration has it */
#define FURCA_LANES_VARIABLE "FURCA_LANES" /* in a host's environment: "shared" where it has */
#define FURCA_LANE_OPEN_FRAMES 'F' /* as 'L'; arrays and frames (ext 3) may come to it, their memory beside VALUE */
