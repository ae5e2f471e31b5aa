"""furca: an engine of its own, one session. With FURCA_WITHOUT=disk (or another guarantee) an engine whose read-only calls lack that barrier."""
import json
import os
import tempfile

import furca

from adapter import READ_S, failed, serve


class Furca:
    def setup(self, code, language):
        without = os.environ.get("FURCA_WITHOUT")
        self.folder = tempfile.mkdtemp(prefix="furca-")
        config = os.path.join(self.folder, "config.json")
        with open(config, "w") as file:
            json.dump({"without": [without]} if without else {}, file)
        self.engine = furca.Engine(start=True, raise_errors=False, options=["--config", config, "--state-dir", self.folder + "/state"])
        self.noted = []

        @self.engine.capability("notes.add", effect="write")
        def add(text):
            self.noted.append(text)
            return len(self.noted)

        @self.engine.capability("notes.count", effect="read")
        def count():
            return len(self.noted)

        self.session, self.python = self.engine.session("bench", language), language == "python"
        answer = self.told(self.session.run(code))
        self.deaths = self.died()
        return answer

    def told(self, answer):
        if not answer.ok:
            return failed(answer.get("error") or "failed")
        if not self.python and answer["exit_code"]:
            return {**failed(answer.stderr or "status %d" % answer["exit_code"]), "value": answer.stdout}
        return {"ok": True, "value": (answer.text or "None") if self.python else answer.stdout}

    def read_only(self, code):
        self.deaths = self.died()
        return self.told(self.session.read(code, timeout_s=READ_S))

    def died(self):
        """How often a session's process has died: a dead one would be repaired in silence."""
        stats = self.engine.stats()
        return stats["repairs"] + stats["rollbacks"] + stats["lost"]

    def observe(self, code):
        answer = self.told(self.session.run(code, timeout_s=READ_S))
        if self.died() != self.deaths:
            answer["lost"] = True
        return answer

    def close(self):
        self.engine.close()


serve(Furca())
