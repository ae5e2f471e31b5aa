# langs/bash/
